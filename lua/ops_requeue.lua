-- Put a failed job back on its queue as if it were new; what it already earned stays.
-- KEYS[1]  job       HASH   RQ's job
-- KEYS[2]  failed    ZSET   RQ's registry of failed jobs of this queue
-- KEYS[3]  queue     LIST   RQ's queue
-- KEYS[4]  queues    SET    RQ's index of queues
-- KEYS[5]  payload   STRING the encoded batch, for jobs of ours
-- KEYS[6]  outcomes  HASH   row -> encoded outcome
-- KEYS[7]  attempts  HASH   row -> starts so far
-- KEYS[8]  cancelled SET    cancelled rows
-- KEYS[9]  producer  STRING its sign of life
-- ARGV[1]  job_id    text
-- ARGV[2]  ours      "1" if the job needs its payload
-- ARGV[3]  data      the job's new data; empty keeps the old one
-- ARGV[4]  now       RQ's time stamp
-- ARGV[5]  ttl_s     how long the job and its payload are kept from now, seconds
-- ARGV[6]  wanted_s  how long the job is wanted although its producer is gone; 0 without one
-- ARGV[7+] row       outcomes to forget: those that failed
-- Returns "OK", or why not: "GONE", "NOT_FAILED", "NO_PAYLOAD".
local job, failed, queue, queues = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local payload, outcomes, attempts, cancelled = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local producer = KEYS[9]
local job_id, ours, data, now, ttl_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local wanted_s = tonumber(ARGV[6])

if redis.call('EXISTS', job) == 0 then
  redis.call('ZREM', failed, job_id)
  return 'GONE'
end
local status = redis.call('HGET', job, 'status')
local ended = status == 'failed' or status == 'stopped'
if not ended or not redis.call('ZSCORE', failed, job_id) then
  return 'NOT_FAILED'
end
if ours == '1' and redis.call('EXISTS', payload) == 0 then
  return 'NO_PAYLOAD'
end
redis.call('ZREM', failed, job_id)
redis.call('HSET', job, 'status', 'queued', 'enqueued_at', now)
redis.call('HDEL', job, 'started_at', 'ended_at', 'exc_info', 'worker_name', 'last_heartbeat')
if data ~= '' then
  redis.call('HSET', job, 'data', data)
end
redis.call('EXPIRE', job, ttl_s)
redis.call('EXPIRE', payload, ttl_s)
if wanted_s > 0 then
  redis.call('SET', producer, '1', 'EX', wanted_s, 'NX')
end
for position = 7, #ARGV do
  local row = ARGV[position]
  redis.call('HDEL', outcomes, row)
end
redis.call('DEL', attempts, cancelled)
redis.call('SADD', queues, queue)
redis.call('RPUSH', queue, job_id)
return 'OK'
