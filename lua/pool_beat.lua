-- Say that a worker and its executions live; tell it which of them it has lost.
-- KEYS[1]  worker     HASH  RQ's worker
-- KEYS[2]  holds      SET   RQ's index of the worker's executions
-- KEYS[3]  facts      HASH  what the worker says about itself
-- ARGV[1]  prefix     text  of RQ's keys
-- ARGV[2]  ours       text  prefix of our keys
-- ARGV[3]  now        text  RQ's time stamp
-- ARGV[4]  expiry_s   seconds until the worker and its executions are given up
-- ARGV[5]  run_s      seconds the keys of a running job are kept at least
-- ARGV[6]  state      text  idle, busy, suspended
-- ARGV[7]  said       text  what it says about itself: fields and values, as a JSON list
-- ARGV[8]  name       text  the worker's
-- ARGV[9+] executions three each: queue, job id, execution id
-- Returns {1 if RQ's registration was gone, now in ms, "job id:execution id" of each one lost}.
local worker, holds, facts = KEYS[1], KEYS[2], KEYS[3]
local prefix, ours, now, expiry_s, run_s = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local state, said, name = ARGV[6], ARGV[7], ARGV[8]

local time = redis.call('TIME')
local now_s = tonumber(time[1])
local now_ms = now_s * 1000 + math.floor(tonumber(time[2]) / 1000)
local answer = { 1 - redis.call('HEXISTS', worker, 'birth'), now_ms }

local function keep(key)
  local left = redis.call('TTL', key)
  if left == -1 or (left >= 0 and left < run_s) then
    redis.call('EXPIRE', key, run_s)
  end
end

if answer[1] == 0 then
  redis.call('HSET', worker, 'last_heartbeat', now, 'state', state)
  redis.call('EXPIRE', worker, expiry_s)
end
redis.call('HSET', facts, unpack(cjson.decode(said)))
redis.call('EXPIRE', facts, expiry_s)
for position = 9, #ARGV, 3 do
  local executions = { ARGV[position], ARGV[position + 1], ARGV[position + 2] }
  local id, run = executions[2], executions[3]
  local wip, member = prefix .. ':wip:' .. executions[1], id .. ':' .. run
  if redis.call('ZSCORE', wip, member) then
    local record, index = prefix .. ':execution:' .. member, prefix .. ':executions:' .. id
    redis.call('ZADD', wip, 'XX', now_s + expiry_s, member)
    redis.call('HSET', record, 'id', run, 'job_id', id, 'last_heartbeat', now_ms / 1000,
      'worker_name', name)
    redis.call('HSETNX', record, 'created_at', now_ms / 1000)
    redis.call('EXPIRE', record, expiry_s + 60)
    redis.call('ZADD', index, now_s + expiry_s + 60, run)
    redis.call('EXPIRE', index, expiry_s + 60)
    redis.call('SADD', holds, member)
    local job = prefix .. ':job:' .. id
    if redis.call('EXISTS', job) == 1 then
      redis.call('HSET', job, 'last_heartbeat', now)
      keep(job)
      keep(ours .. ':job:{' .. id .. '}:payload')
    end
  else
    redis.call('SREM', holds, member)
    answer[#answer + 1] = member
  end
end
redis.call('EXPIRE', holds, expiry_s + 60)
return answer
