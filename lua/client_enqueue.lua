-- Put one job on a queue. Sent again, it changes nothing: the job's hash tells.
-- KEYS[1]  job          HASH    RQ's job
-- KEYS[2]  payload      STRING  the encoded batch
-- KEYS[3]  queue        LIST    ids of the jobs that wait
-- KEYS[4]  queues       SET     RQ's index of queues
-- KEYS[5]  producer     STRING  says that the producer lives
-- ARGV[1]  job_id       the job's id
-- ARGV[2]  batch        bytes of the payload
-- ARGV[3]  payload_s    lifetime of the payload, seconds
-- ARGV[4]  job_s        lifetime of the job's hash, seconds
-- ARGV[5]  producer_s   lifetime of the producer's sign of life, seconds
-- ARGV[6+] fields       the hash: name, value, name, value ...
-- Returns 1 if the job was queued, 0 if it had been before.
local job, payload, queue, queues, producer = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local job_id, batch, payload_s, job_s, producer_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local fields = { unpack(ARGV, 6) }

if redis.call("EXISTS", job) == 1 then
    return 0
end
redis.call("SET", producer, "1", "EX", producer_s)
redis.call("SET", payload, batch, "EX", payload_s)
redis.call("HSET", job, unpack(fields))
redis.call("EXPIRE", job, job_s)
redis.call("SADD", queues, queue)
redis.call("RPUSH", queue, job_id)
return 1
