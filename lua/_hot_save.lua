-- The fast path's end: the state as _state's core.save writes it.
redis.call('SET', key_state, string.format(
  '0 0 %d %s %d %s %d %d %s %d %s %d %s %d %s %d %s %s %s %d %d %d %d %d %d %s',
  now, offset, due, keep, fence, flying, most, rlevel, rrate, rcap, rback, tlevel, trate, tcap, ttop,
  cost_max, refunds, old_fence, old_n, old_high, new_fence, new_n, new_high, cold), 'KEEPTTL')
