-- Read how a limit stands; writes nothing.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- Returns a flat list of names and texts, or {-9} without settings.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
-- include _time _state _buckets
if not core.load() then
  return { -9 }
end
core.refill()
local set = core.settings()
local flying = redis.call('ZCOUNT', key_leases, '(' .. text(S.now), '(' .. text(DONE))
local waiting = redis.call('ZCOUNT', key_queue, '-inf', '(inf')
local oldest = 0
if waiting > 0 then
  local head = redis.call('ZRANGE', key_queue, 0, 0)[1]
  local since = string.match(redis.call('HGET', key_calls, head) or '', '^w .* (%d+)$')
  oldest = since and max(0, S.now - since) or 0
end
local answer = {
  'in_flight', text(flying), 'waiting', text(waiting), 'oldest_ms', text(oldest),
  'pause_ms', text(max(0, S.pause - S.now)), 'rlevel', text(min(S.rlevel, S.rcap)),
  'rcap', text(S.rrate < 0 and 0 or S.rcap), 'rrate', text(S.rrate),
  'tlevel', text(min(S.tlevel, S.tcap)), 'tcap', text(S.trate < 0 and 0 or S.tcap), 'trate', text(S.trate),
  'grants', text(S.fence - S.epoch), 'refusals', text(S.refusals), 'reclaimed', text(S.reclaimed),
  'waits', text(S.waits), 'wait_ms', text(S.wait_ms), 'throttles', text(S.throttles),
  'epoch', text(S.epoch), 'now_ms', text(S.now), 'last_ms', text(S.last),
}
for name, value in pairs(set) do
  table.insert(answer, 'set.' .. name)
  table.insert(answer, value)
end
return answer
