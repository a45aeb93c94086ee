// The limits that a request passes before it reaches the engine: its key's, and those of each adapter that it names. All or none:
// a request that one of them refuses takes nothing of the others. Thread-safe; tickets go before this.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "choral/types.h"
#include "serve/keys/rate_limiter.h"

namespace choral::serve {

class RequestLimits {
 public:
  RequestLimits(RateLimit of_key, RateLimit of_adapter) : keys_("key", of_key), adapters_("adapter", of_adapter) {}

  // Held while the request runs.
  class Grant {
   public:
    void settle(int64_t tokens);  // prompt and answers; at the end

   private:
    friend class RequestLimits;
    std::vector<RateLimiter::Ticket> tickets_;
  };
  struct Verdict {
    Status status;             // resource_exhausted: 429
    double retry_after_s = 0;  // then, in whole seconds
    bool by_adapter = false;   // then, rather than by the key
    Grant grant;
  };
  // `key_name`: KeyHolder::name; empty where no key is asked for. `most_tokens`: prompt and, for each answer, max_tokens.
  Verdict admit(std::string_view key_name, std::span<const AdapterUse> adapters, int64_t most_tokens, double now);

 private:
  RateLimiter keys_, adapters_;
};

}  // namespace choral::serve
