-- Cancel a job, or some of its rows: take it off its queue, or tell the worker that runs it.
-- KEYS[1]  job       HASH    RQ's job
-- KEYS[2]  queue     LIST    RQ's queue of job ids
-- KEYS[3]  payload   STRING  the encoded batch
-- KEYS[4]  attempts  HASH    row -> starts so far
-- KEYS[5]  cancelled SET     rows, or "*"
-- ARGV[1]  job_id    text
-- ARGV[2]  ttl_s     seconds the cancel key is kept
-- ARGV[3]  result_ttl_s  seconds a job that was taken off is kept
-- ARGV[4+] row       rows to cancel; none for all of them
-- Returns "REMOVED" (was queued, nobody will reply), "TOLD" (a worker replies) or "GONE".
local job, queue, payload, attempts, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local job_id, ttl_s, result_ttl_s = ARGV[1], ARGV[2], ARGV[3]

local status = redis.call('HGET', job, 'status')
if not status or status == 'finished' or status == 'failed' or status == 'canceled'
  or status == 'stopped' then
  return 'GONE'
end
if #ARGV == 3 and redis.call('LREM', queue, 1, job_id) == 1 then
  redis.call('HSET', job, 'status', 'canceled')
  redis.call('EXPIRE', job, result_ttl_s)
  redis.call('DEL', payload, attempts)
  return 'REMOVED'
end
if #ARGV == 3 then
  redis.call('SADD', cancelled, '*')
end
for position = 4, #ARGV do
  local row = ARGV[position]
  redis.call('SADD', cancelled, row)
end
redis.call('EXPIRE', cancelled, ttl_s)
return 'TOLD'
