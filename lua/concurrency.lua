-- Places held under leases; twin of src/algorithm/concurrency.rs, where it is explained.
--   limit     in places
--   lifetime  the leases' time to live, in microseconds
--   extra     of a charge: the name of the lease, or zeros
--             of what gives back: the name of the lease that ends; zeros to give so many hits back
--   reply     as of a log
QUEUES[3] = {
  width = 16,

  admits = function(queue, hits, limit)
    return queue.used + hits <= limit
  end,

  push = function(queue, hits, extra, now)
    push(queue, now, hits, extra)
  end,

  give_back = function(queue, hits, lifetime, extra)
    if extra == NO_LEASE then
      remove_oldest(queue, hits)
    else
      remove_lease(queue, extra)
    end
  end,

  wait = function(queue, hits, limit, lifetime, extra, now)
    return wait_for_room(queue, now, lifetime, limit, hits)
  end,
}
