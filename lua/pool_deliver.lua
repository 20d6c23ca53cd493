-- Deliver outcomes of one execution row by row, and end its job when told; fenced.
-- KEYS[1]  wip        ZSET    RQ's registry of executions of the queue
-- KEYS[2]  job        HASH    RQ's job
-- KEYS[3]  execution  HASH    RQ's execution
-- KEYS[4]  executions ZSET    RQ's index of the job's executions
-- KEYS[5]  worker     HASH    RQ's worker
-- KEYS[6]  holds      SET     RQ's index of the worker's executions
-- KEYS[7]  results    STREAM  RQ's results of the job
-- KEYS[8]  ended      ZSET    RQ's registry of finished, or of failed jobs
-- KEYS[9]  payload    STRING  the encoded batch
-- KEYS[10] outcomes   HASH    row -> encoded outcome
-- KEYS[11] attempts   HASH    row -> starts
-- KEYS[12] cancelled  SET     cancelled rows
-- KEYS[13] reply      STREAM  the producer's
-- KEYS[14] stats      HASH    the queue's counters
-- KEYS[15] dependents SET     RQ's jobs that wait for this one
-- ARGV[1]  job_id     text
-- ARGV[2]  run        text    the execution's id
-- ARGV[3]  ending     ""|finished|failed|stopped   what becomes of the job
-- ARGV[4]  now        text    RQ's time stamp
-- ARGV[5]  keep_s     seconds the job, its result and its outcomes are kept
-- ARGV[6]  reply_s    seconds the reply stream is kept; 0 for no stream
-- ARGV[7]  maxlen     entries of the reply stream
-- ARGV[8]  result     text    RQ's return_value or exc_string
-- ARGV[9]  kind       text    why the job failed; empty unless all rows fail so
-- ARGV[10] message    text    the same for people
-- ARGV[11] name       text    the worker's
-- ARGV[12] started    seconds since 1970, RQ's clock
-- ARGV[13] finished   seconds since 1970
-- ARGV[14] stats_s    seconds the counters are kept
-- ARGV[15] rows       msgpack: a list of {row, outcome, source|status, names of histogram buckets,
--                     reward, wait_ms, run_ms, tokens}
-- Returns {-1} if the execution is no longer registered, else {rows written, dependents}.
local wip, job, execution, executions, worker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local holds, results, ended, payload, outcomes = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local attempts, cancelled, reply, stats, dependents = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local job_id, run, ending, now, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local reply_s, maxlen, result, kind, message = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local name, started, finished, stats_s, rows = ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15]

local member = job_id .. ':' .. run
if not redis.call('ZSCORE', wip, member) then
  return { -1 }
end

local function of_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then
    redis.call('DEL', key)
  end
end

of_type(outcomes, 'hash')
of_type(reply, 'stream')
of_type(stats, 'hash')
local entry, sums, labels = { 'job', job_id }, {}, {}
for _, row in ipairs(cmsgpack.unpack(rows)) do
  if redis.call('HSETNX', outcomes, row[1], row[2]) == 1 then
    entry[#entry + 1] = row[1]
    entry[#entry + 1] = row[2]
    local label = row[3]
    local sum = sums[label]
    if not sum then
      sum = { 0, 0, 0, 0, 0, {} }
      sums[label] = sum
      labels[#labels + 1] = label
    end
    sum[1] = sum[1] + 1
    for _, bucket in ipairs(row[4]) do
      sum[6][bucket] = (sum[6][bucket] or 0) + 1
    end
    for item = 2, 5 do
      sum[item] = sum[item] + row[item + 3]
    end
  end
end
local written = (#entry - 2) / 2
if written > 0 then
  redis.call('EXPIRE', outcomes, keep_s)
  for _, label in ipairs(labels) do
    local sum, field = sums[label], label
    if redis.call('HEXISTS', stats, label .. '|rows') == 0 and redis.call('HLEN', stats) > 8000 then
      field = 'other' .. string.sub(label, (string.find(label, '|', 1, true)))
    end
    redis.call('HINCRBY', stats, field .. '|rows', sum[1])
    redis.call('HINCRBYFLOAT', stats, field .. '|reward', string.format('%.17g', sum[2]))
    redis.call('HINCRBY', stats, field .. '|wait_ms', sum[3])
    redis.call('HINCRBY', stats, field .. '|run_ms', sum[4])
    redis.call('HINCRBY', stats, field .. '|tokens', sum[5])
    for bucket, count in pairs(sum[6]) do
      redis.call('HINCRBY', stats, field .. '|' .. bucket, count)
    end
  end
  redis.call('EXPIRE', stats, stats_s)
end
if reply_s > 0 and written > 0 then
  if ending == 'finished' then
    entry[#entry + 1] = 'done'
    entry[#entry + 1] = '1'
  end
  redis.call('XADD', reply, 'MAXLEN', '~', maxlen, '*', unpack(entry))
end
if reply_s > 0 and kind ~= '' then
  redis.call('XADD', reply, 'MAXLEN', '~', maxlen, '*', 'job', job_id, 'failed', kind,
    'message', message)
end
if reply_s > 0 and (written > 0 or kind ~= '') then
  redis.call('EXPIRE', reply, reply_s)
end
if ending == '' then
  return { written, 0 }
end
if kind ~= '' then
  local left = (tonumber(redis.call('HGET', job, 'rows') or '') or 0) - redis.call('HLEN', outcomes)
  if left > 0 then
    redis.call('HINCRBY', stats, '-|' .. kind .. '|rows', left)
    redis.call('EXPIRE', stats, stats_s)
  end
end

redis.call('ZREM', wip, member)
redis.call('DEL', execution, attempts, cancelled)
redis.call('ZREM', executions, run)
redis.call('SREM', holds, member)
of_type(results, 'stream')
local outcome = { 'type', '1', 'return_value', result }
local count = 'successful_job_count'
if ending == 'finished' then
  redis.call('DEL', payload)
else
  outcome = { 'type', '2', 'exc_string', result }
  count = 'failed_job_count'
end
if redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, 'status', ending, 'ended_at', now, 'last_heartbeat', now)
  if ending ~= 'finished' then
    redis.call('HSET', job, 'exc_info', message)
  end
  redis.call('EXPIRE', job, keep_s)
  redis.call('XADD', results, 'MAXLEN', 10, '*', 'worker_name', name, 'execution_id', run,
    'execution_started_at', started, 'execution_ended_at', finished, unpack(outcome))
  redis.call('EXPIRE', results, keep_s)
  redis.call('ZADD', ended, math.floor(tonumber(redis.call('TIME')[1])) + keep_s, job_id)
end
if redis.call('EXISTS', outcomes) == 1 then
  redis.call('EXPIRE', outcomes, keep_s)
end
if redis.call('EXISTS', worker) == 1 then
  redis.call('HINCRBY', worker, count, 1)
  redis.call('HINCRBYFLOAT', worker, 'total_working_time', tonumber(finished) - tonumber(started))
end
return { written, redis.call('EXISTS', dependents) }
