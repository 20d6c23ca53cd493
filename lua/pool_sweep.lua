-- Put the jobs of dead workers back on their queue, and drop what points nowhere.
-- KEYS[1]  wip           ZSET  RQ's registry of executions of the queue
-- KEYS[2]  queue         LIST  RQ's queue
-- KEYS[3]  intermediate  LIST  job ids between the queue and their start
-- KEYS[4]  finished      ZSET  RQ's registry of finished jobs
-- KEYS[5]  failed        ZSET  RQ's registry of failed jobs
-- KEYS[6]  canceled      ZSET  RQ's registry of canceled jobs
-- KEYS[7]  listeners     SET   RQ's index of the queue's workers
-- KEYS[8]  workers       SET   RQ's index of all workers
-- KEYS[9]  due           STRING  when the queue may be swept next, ms
-- ARGV[1]  prefix        text  of RQ's keys
-- ARGV[2]  sweep_ms      between two sweeps
-- ARGV[3]  parked_s      seconds an id may stay in the intermediate list
-- ARGV[4]  most          executions at most
-- ARGV[5]  grace_ms      given to the living to say so, when nobody has swept for long
-- Returns {"NOT_YET"}, {"WAIT"} when nobody swept for long, so that those who live say so first,
-- or {"SWEPT", put back, dropped, then the ids put back}.
local wip, queue, intermediate, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local failed, canceled, listeners, workers, due = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local prefix, sweep_ms, parked_s = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local most, grace_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

local time = redis.call('TIME')
local now_s = tonumber(time[1])
local now_ms = now_s * 1000 + math.floor(tonumber(time[2]) / 1000)

local function list(key, wanted, ...)
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then
    redis.call('DEL', key)
  end
  return redis.call(...)
end

local stored = tonumber(list(due, 'string', 'GET', due) or '') or 0
local longest = math.max(sweep_ms, grace_ms)
if now_ms < stored and stored - now_ms <= longest then
  return { 'NOT_YET' }
end
local function set_due(pause_ms)
  redis.call('SET', due, string.format('%.0f', now_ms + pause_ms), 'PX', longest * 20)
end
if now_ms - stored > math.max(sweep_ms * 0.6, 1000) then
  set_due(grace_ms)
  return { 'WAIT' }
end
set_due(math.floor(sweep_ms * 0.8))

local back, dropped = {}, 0
local function put_back(id, from)
  local job = prefix .. ':job:' .. id
  if redis.call('TYPE', job).ok ~= 'hash' or redis.call('HGET', job, 'status') ~= from then
    dropped = dropped + 1
    return
  end
  redis.call('HSET', job, 'status', 'queued')
  redis.call('HDEL', job, 'started_at', 'worker_name')
  redis.call('LPUSH', queue, id)
  back[#back + 1] = id
end

local queue_is_sound = redis.call('TYPE', queue).ok
if queue_is_sound ~= 'list' and queue_is_sound ~= 'none' then
  redis.call('DEL', queue)
end
for _, member in ipairs(list(wip, 'zset', 'ZRANGEBYSCORE', wip, '-inf', '(' .. now_s, 'LIMIT', 0, most)) do
  redis.call('ZREM', wip, member)
  local id, run = string.match(member, '^([^:]+):([^:]+)$')
  if id then
    local record = prefix .. ':execution:' .. member
    if redis.call('TYPE', record).ok == 'hash' then
      local holds = prefix .. ':worker:' .. (redis.call('HGET', record, 'worker_name') or '') .. ':executions'
      if redis.call('TYPE', holds).ok == 'set' then
        redis.call('SREM', holds, member)
      end
    end
    redis.call('DEL', record)
    local index = prefix .. ':executions:' .. id
    if redis.call('TYPE', index).ok == 'zset' then
      redis.call('ZREM', index, run)
    end
    put_back(id, 'started')
  else
    dropped = dropped + 1
  end
end
for _, id in ipairs(list(intermediate, 'list', 'LRANGE', intermediate, 0, most)) do
  local seen = intermediate .. ':first_seen:' .. id
  local first = tonumber(list(seen, 'string', 'GET', seen) or '')
  if not first then
    redis.call('SET', seen, now_s, 'EX', 3600)
  elseif now_s - first >= parked_s then
    redis.call('DEL', seen)
    redis.call('LREM', intermediate, 0, id)
    put_back(id, 'queued')
  end
end
for _, registry in ipairs({ finished, failed }) do
  list(registry, 'zset', 'ZREMRANGEBYSCORE', registry, '-inf', now_s)
end
for _, id in ipairs(list(canceled, 'zset', 'ZRANGE', canceled, 0, most)) do
  if redis.call('EXISTS', prefix .. ':job:' .. id) == 0 then
    redis.call('ZREM', canceled, id)
  end
end
for _, key in ipairs(list(listeners, 'set', 'SMEMBERS', listeners)) do
  if redis.call('EXISTS', key) == 0 then
    redis.call('SREM', listeners, key)
    redis.call('SREM', workers, key)
  end
end
local answer = { 'SWEPT', #back, dropped }
for _, id in ipairs(back) do
  answer[#answer + 1] = id
end
return answer
