-- The fast path's half of a release, nothing written yet: `freed` says that it applies.
local freed = false
if hot then
  local own, charged = string.match(redis.call('HGET', key_calls, old_id) or '', '^h ([^ ]+) ([^ ]+)')
  if own and own + 0 == old_fence_given then
    freed, own, charged = true, own + 0, charged + 0
    local newer = new_fence ~= '0' and own >= new_fence + 0
    local older = not newer and old_fence ~= '0' and own >= old_fence + 0
    if trate ~= '-1' and used > charged then
      tlevel = (tlevel > tcap and tcap or tlevel) - (used - charged) * 60000
      freed = tlevel > -9e15
    elseif trate ~= '-1' and used >= 0 and used < charged and refunds == '1' then
      local back = tcap - (newer and new_high or older and old_high or tcap)
      if back > (charged - used) * 60000 then
        back = (charged - used) * 60000
      end
      if back > 0 then
        tlevel = tlevel + back
        old_high, new_high = math.min(tcap, old_high + back), math.min(tcap, new_high + back)
      end
    end
    if newer then
      new_n = math.max(0, new_n - 1)
    elseif older then
      old_n = math.max(0, old_n - 1)
    end
    if old_n + 0 <= 0 then
      old_fence, old_n, old_high, new_fence, new_n, new_high = new_fence, new_n, new_high, '0', 0, 0
      if old_n + 0 <= 0 then
        old_fence, old_n, old_high = '0', 0, 0
      end
    end
    flying = math.max(0, flying - 1)
  end
end
