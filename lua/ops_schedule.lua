-- Put one job whose time has come on its queue; a job that is gone leaves the registry.
-- KEYS[1]  job       HASH  RQ's job
-- KEYS[2]  scheduled ZSET  RQ's registry: job id -> due time, seconds
-- KEYS[3]  queue     LIST  RQ's queue
-- KEYS[4]  queues    SET   RQ's index of queues
-- ARGV[1]  job_id    text
-- ARGV[2]  due_s     jobs scheduled up to here are due, seconds
-- ARGV[3]  now       RQ's time stamp
-- Returns 1 if the job was queued, 0 if not.
local job, scheduled, queue, queues = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local job_id, due_s, now = ARGV[1], ARGV[2], ARGV[3]

local at = redis.call('ZSCORE', scheduled, job_id)
if not at or tonumber(at) > tonumber(due_s) then
  return 0
end
redis.call('ZREM', scheduled, job_id)
if redis.call('EXISTS', job) == 0 then
  return 0
end
local front = redis.call('HGET', job, 'enqueue_at_front') == '1'
if redis.call('HGET', job, 'enqueue_at_front_on_retry') == '1' then
  front = front or (redis.call('HGET', job, 'ended_at') or '') ~= ''
end
redis.call('HSET', job, 'status', 'queued', 'enqueued_at', now)
redis.call('SADD', queues, queue)
if front then
  redis.call('LPUSH', queue, job_id)
else
  redis.call('RPUSH', queue, job_id)
end
return 1
