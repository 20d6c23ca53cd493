-- Put a job that was taken back to the front of its queue, its starts unspent; fenced.
-- KEYS[1]  wip        ZSET  RQ's registry of executions of the queue
-- KEYS[2]  job        HASH  RQ's job
-- KEYS[3]  execution  HASH  RQ's execution
-- KEYS[4]  executions ZSET  RQ's index of the job's executions
-- KEYS[5]  holds      SET   RQ's index of the worker's executions
-- KEYS[6]  queue      LIST  RQ's queue
-- KEYS[7]  attempts   HASH  row -> starts
-- ARGV[1]  job_id     text
-- ARGV[2]  run        text  the execution's id
-- ARGV[3+] row        rows whose start is not counted; "*" stands for all of them
-- Returns 1, or 0 if the execution is no longer registered.
local wip, job, execution, executions = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holds, queue, attempts = KEYS[5], KEYS[6], KEYS[7]
local job_id, run = ARGV[1], ARGV[2]

local member = job_id .. ':' .. run
if redis.call('ZREM', wip, member) == 0 then
  return 0
end
redis.call('DEL', execution)
redis.call('ZREM', executions, run)
redis.call('SREM', holds, member)
if redis.call('EXISTS', job) == 0 then
  return 1
end
local counted = 0
if redis.call('EXISTS', attempts) == 1 then
  redis.call('HSET', attempts, 'takes', 0)
  for position = 3, #ARGV do
    local row = ARGV[position]
    redis.call('HINCRBY', attempts, row, -1)
  end
  for _, count in ipairs(redis.call('HVALS', attempts)) do
    if count ~= '0' then
      counted = counted + 1
    end
  end
  if counted == 0 then
    redis.call('DEL', attempts)
  end
end
redis.call('HSET', job, 'status', 'queued')
redis.call('HDEL', job, 'started_at', 'worker_name')
redis.call('LPUSH', queue, job_id)
return 1
