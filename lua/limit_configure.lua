-- Write a limit's settings: declared by a program, set by an operator, or reset to the declared.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  how             declare | set | reset
-- ARGV[2]  who             text
-- ARGV[3]  revision        the settings the caller has read; -1 any
-- ARGV[4]  max_concurrent  calls, or empty for unlimited
-- ARGV[5]  rpm             requests a minute, or empty
-- ARGV[6]  tpm             tokens a minute, or empty
-- ARGV[7]  burst_ms        ms worth of the rate the buckets hold
-- ARGV[8]  strict          0 | 1
-- ARGV[9]  oversize        alone | error
-- ARGV[10]  refund          0 | 1
-- ARGV[11]  owner           text
-- Returns {1 changed | 0 nothing to change | -1 others changed them meanwhile | -2 nothing declared,
-- handed, head, head_wait}.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local how, who, revision = ARGV[1], ARGV[2], ARGV[3] + 0
local max_concurrent, rpm, tpm, burst_ms = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local strict, oversize, refund, owner = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
-- include _time _state _buckets _leases _queue
local NAMES = { 'max_concurrent', 'rpm', 'tpm', 'burst_ms', 'strict', 'oversize', 'refund' }
local wanted = { max_concurrent, rpm, tpm, burst_ms, strict, oversize, refund }
local now_set = core.settings()
local stored = now_set.burst_ms ~= nil
local declared = table.concat(wanted, ',')

if how == 'declare' and stored and now_set.declared == declared then
  return { 0, handed, head_id, head_wait }
elseif how == 'set' and revision >= 0 and stored and now_set.revision + 0 ~= revision then
  return { -1, handed, head_id, head_wait }
elseif how == 'reset' then
  if not now_set.declared or now_set.declared == '' then
    return { -2, handed, head_id, head_wait }
  end
  wanted = {}
  for value in string.gmatch(now_set.declared .. ',', '([^,]*),') do
    table.insert(wanted, value)
  end
end
if how ~= 'declare' then
  declared = now_set.declared or ''
end

local fresh, changed = {}, not stored
for i, name in ipairs(NAMES) do
  fresh[name] = wanted[i]
  changed = changed or now_set[name] ~= wanted[i]
end

-- The old rates hold up to now; then levels are kept and cut to the new capacities. What was
-- charged under other rates is not given back.
local alive = core.begin()
if changed or now_set.declared ~= declared then
  local source = how == 'set' and 'operator' or 'declared'
  redis.call('HSET', key_settings, 'max_concurrent', fresh.max_concurrent, 'rpm', fresh.rpm, 'tpm',
    fresh.tpm, 'burst_ms', fresh.burst_ms, 'strict', fresh.strict, 'oversize', fresh.oversize,
    'refund', fresh.refund, 'declared', declared, 'source', source, 'by', who, 'at_ms',
    text(clock_ms), 'revision', text((now_set.revision or 0) + 1))
end
if alive and changed then
  local rcap, rrate, tcap, trate = S.rcap, S.rrate, S.tcap, S.trate
  S.rlevel, S.tlevel = min(S.rlevel, S.rcap), min(S.tlevel, S.tcap)
  core.derive(fresh)
  S.rlevel = rcap == 0 and S.rcap or S.rcap == 0 and S.rlevel or min(S.rlevel, S.rcap)
  S.tlevel = tcap == 0 and S.tcap or S.tcap == 0 and S.tlevel or min(S.tlevel, S.tcap)
  if S.rcap == 0 then S.rcap = rcap end
  if S.tcap == 0 then S.tcap = tcap end
  if rcap ~= S.rcap or rrate ~= S.rrate or tcap ~= S.tcap or trate ~= S.trate then
    core.forget_charges()
  end
  core.arm()
end
if alive then
  core.close(owner)
end
return { changed and 1 or 0, handed, head_id, head_wait }
