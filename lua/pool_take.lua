-- Take jobs from queues in their order and start one execution of each, at one instant.
-- KEYS[1]  worker      HASH   RQ's worker
-- KEYS[2]  executions  SET    RQ's index of this worker's executions
-- KEYS[3]  suspended   STRING set by `rq suspend`
-- KEYS[4+] queues      LIST   RQ's queues, most important first
-- ARGV[1]  prefix      text   of RQ's keys
-- ARGV[2]  ours        text   prefix of our keys
-- ARGV[3]  name        text   the worker's name
-- ARGV[4]  free        rows   places free
-- ARGV[5]  most        jobs   at most this many
-- ARGV[6]  seed        text   unique; execution ids begin with it
-- ARGV[7]  now         text   RQ's time stamp
-- ARGV[8]  expiry_s    seconds until an execution without heartbeat is given up
-- ARGV[9]  run_s       seconds the keys of a running job are kept at least
-- ARGV[10] inline      bytes  payloads up to this size come with the answer
-- ARGV[11+] parked     pairs of a queue's position and a job id in its intermediate list
-- Every job's own keys follow from its id; a slot of one server is assumed.
-- Returns {"OK" or "SUSPENDED", now in ms, job…}; a job is {id, queue's position, execution id,
-- fields of its hash, bytes of the payload or -1, payload or "", attempts, rows with an outcome,
-- cancelled rows, 1 if its producer lives}.
local worker, executions, suspended = KEYS[1], KEYS[2], KEYS[3]
local prefix, ours, name = ARGV[1], ARGV[2], ARGV[3]
local free, most = tonumber(ARGV[4]), tonumber(ARGV[5])
local seed, now, expiry_s, run_s, inline = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

local NEVER_RUN = {
  started = true, finished = true, failed = true, deferred = true, scheduled = true,
  canceled = true, stopped = true,
}
local time = redis.call('TIME')
local now_s = tonumber(time[1])
local now_ms = now_s * 1000 + math.floor(tonumber(time[2]) / 1000)
local taken, inlined = {}, 0

local function list(...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or found.err then
    return {}
  end
  return found
end

local function keep(key)
  local left = redis.call('TTL', key)
  if left == -1 or (left >= 0 and left < run_s) then
    redis.call('EXPIRE', key, run_s)
  end
end

local function runs_already(id, wip)
  for _, execution in ipairs(list('ZRANGE', prefix .. ':executions:' .. id, 0, -1)) do
    if redis.call('ZSCORE', wip, id .. ':' .. execution) then
      return true
    end
  end
  return false
end

local function start(position, id)
  local job = prefix .. ':job:' .. id
  if redis.call('TYPE', job).ok ~= 'hash' then
    return
  end
  local queue = string.sub(KEYS[position + 3], #prefix + 8)
  local wip = prefix .. ':wip:' .. queue
  if NEVER_RUN[redis.call('HGET', job, 'status') or ''] or runs_already(id, wip) then
    return
  end
  local fields = redis.call('HGETALL', job)
  local rows = math.max(1, tonumber(redis.call('HGET', job, 'rows') or '1') or 1)
  local execution = seed .. string.format('%08x', #taken)
  local member = id .. ':' .. execution
  local record = prefix .. ':execution:' .. member
  redis.call('ZADD', wip, now_s + expiry_s, member)
  redis.call('HSET', record, 'id', execution, 'job_id', id, 'created_at', now_ms / 1000,
    'last_heartbeat', now_ms / 1000, 'worker_name', name)
  redis.call('EXPIRE', record, expiry_s + 60)
  local index = prefix .. ':executions:' .. id
  if redis.call('TYPE', index).ok ~= 'zset' then
    redis.call('DEL', index)
  end
  redis.call('ZADD', index, now_s + expiry_s + 60, execution)
  redis.call('EXPIRE', index, expiry_s + 60)
  redis.call('SADD', executions, member)
  redis.call('HSET', job, 'status', 'started', 'started_at', now, 'last_heartbeat', now,
    'worker_name', name, 'retries_left', 1000)
  keep(job)

  local root = ours .. ':job:{' .. id .. '}:'
  local payload, attempts = root .. 'payload', root .. 'attempts'
  local size, bytes = -1, ''
  if redis.call('TYPE', payload).ok == 'string' then
    keep(payload)
    size = redis.call('STRLEN', payload)
    if size <= inline and inlined + size <= inline * 16 then
      bytes = redis.call('GET', payload)
      inlined = inlined + size
    end
  end
  if redis.call('TYPE', attempts).ok ~= 'hash' then
    redis.call('DEL', attempts)
  end
  local counts = redis.call('HGETALL', attempts)
  if #counts == 0 then
    redis.call('HSET', attempts, '*', 1, 'takes', 1)
  else
    redis.call('HINCRBY', attempts, 'takes', 1)
  end
  redis.call('EXPIRE', attempts, 86400)
  local producer = string.match(id, '^([%w%-]+)_')
  local lives = 1
  if producer then
    lives = redis.call('EXISTS', ours .. ':producer:' .. producer)
  end
  taken[#taken + 1] = {
    id, position, execution, fields, size, bytes, counts,
    list('HKEYS', root .. 'outcomes'), list('SMEMBERS', root .. 'cancelled'), lives,
  }
  free = free - rows
end

local halted = redis.call('EXISTS', suspended) == 1
for argument = 11, #ARGV, 2 do
  local parked = { tonumber(ARGV[argument]), ARGV[argument + 1] }
  local queue = KEYS[parked[1] + 3]
  if redis.call('LREM', queue .. ':intermediate', 1, parked[2]) == 1 then
    redis.call('DEL', queue .. ':intermediate:first_seen:' .. parked[2])
    if halted or free <= 0 then
      redis.call('LPUSH', queue, parked[2])
    else
      start(parked[1], parked[2])
    end
  end
end
if halted then
  return { 'SUSPENDED', now_ms }
end
for position = 1, #KEYS - 3 do
  local queues = KEYS[position + 3]
  while free > 0 and #taken < most and redis.call('TYPE', queues).ok == 'list' do
    start(position, redis.call('LPOP', queues))
  end
end
if #taken > 0 then
  redis.call('EXPIRE', executions, expiry_s + 60)
  if redis.call('EXISTS', worker) == 1 then
    redis.call('HSET', worker, 'state', 'busy')
  end
end
local answer = { 'OK', now_ms }
for _, job in ipairs(taken) do
  answer[#answer + 1] = job
end
return answer
