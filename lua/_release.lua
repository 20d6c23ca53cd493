-- Ending a lease with what was used: 1 ended now, 0 had ended before, -1 it was lost.

function core.unknown(id, fence)
  -- Redis lost its data since the grant, or it ended more than a minute ago.
  redis.call('ZADD', key_leases, text(DONE + S.now), id)
  return fence <= S.epoch and 0 or -1
end

-- `used` is the final total of tokens; -1 leaves the reservation as it stands.
function core.release(id, fence, used)
  local own, charged = core.held(id)
  if not own then
    local fate = core.fate(redis.call('ZSCORE', key_leases, id))
    if fate == 1 then
      core.finish(id, fence, DONE)
      return 1
    end
    return fate or core.unknown(id, fence)
  elseif own ~= fence then
    return -1
  end
  if used > charged then
    core.overage(used - charged)
  elseif used >= 0 and S.refund == 1 and used < charged then
    core.refund(fence, charged - used)
  end
  core.finish(id, fence, DONE)
  return 1
end

function core.overage(tokens)
  if S.trate >= 0 then
    S.tlevel = max(-DEBT, min(S.tlevel, S.tcap) - tokens * UNIT)
  end
end
