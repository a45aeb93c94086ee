// Requests for tests of the scheduler, and what the simulated model answers to them (simulated_engine_test.h). Tests only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sched/request.h"

namespace choral::sched {

inline uint64_t mix_kv(uint64_t kv, int32_t token) {
  kv = (kv ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return kv ^ (kv >> 29);
}

// Each position is made by the weights that act there.
inline uint64_t mix_position(uint64_t kv, const Request& request, int32_t position, int32_t token) {
  return mix_kv(kv + 1000003u * static_cast<uint64_t>(request.adapter_key_at(position).value() + 1), token);
}

// Few different tokens, so that sequences meet again.
inline int32_t next_token(uint64_t kv) { return static_cast<int32_t>((kv >> 40) % 3); }

inline cache::PrefixRoot root_of(int32_t adapter_key) {
  cache::AdapterIdentity identity;
  identity.digest.fill(static_cast<uint8_t>(adapter_key));
  return cache::make_prefix_root(std::span(&identity, adapter_key == 0 ? 0 : 1), "");
}

inline std::vector<AdapterId> adapter_ids(const std::vector<int32_t>& numbers) {
  std::vector<AdapterId> ids;
  for (const int32_t number : numbers) ids.push_back(AdapterId{number});
  return ids;
}

inline void use_adapters(Request& request, int32_t key, const std::vector<int32_t>& adapters) {
  request.adapter_key = AdapterKey{key};
  request.adapter_ids = adapter_ids(adapters);
}

// Of adapter `adapter_key` alone; 0: of the base.
inline std::unique_ptr<Request> make_request(RequestId id, std::vector<int32_t> prompt, int32_t max_tokens,
                                             int32_t adapter_key = 0, int32_t priority = 0) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->tokens = std::move(prompt);
  request->max_tokens = max_tokens;
  use_adapters(*request, adapter_key, adapter_key == 0 ? std::vector<int32_t>{} : std::vector{adapter_key});
  request->priority = priority;
  request->prefix_root = root_of(adapter_key);
  return request;
}

// Several adapters, or other factors of one: `adapter_key` is theirs alone.
inline std::unique_ptr<Request> make_mix_request(RequestId id, std::vector<int32_t> prompt, int32_t max_tokens,
                                                 int32_t adapter_key, const std::vector<int32_t>& adapters) {
  auto request = make_request(id, std::move(prompt), max_tokens, adapter_key);
  use_adapters(*request, adapter_key, adapters);
  return request;
}

// An aLoRA request: the base's up to `activation`, the adapter's from there on.
inline std::unique_ptr<Request> make_activated_request(RequestId id, std::vector<int32_t> prompt, int32_t max_tokens,
                                                       int32_t adapter_key, int32_t activation) {
  auto request = make_request(id, std::move(prompt), max_tokens, adapter_key);
  request->activation_token = activation;
  if (activation > 0) {
    request->activated_root = request->prefix_root;
    request->prefix_root = root_of(0);
  }
  return request;
}

// What the model answers to this prompt, alone.
inline std::vector<int32_t> expected_output(const Request& request, std::span<const int32_t> prompt, int32_t count) {
  uint64_t kv = 0;
  int32_t position = 0;
  for (const int32_t token : prompt) kv = mix_position(kv, request, position++, token);
  std::vector<int32_t> output;
  while (static_cast<int32_t>(output.size()) < count) {
    output.push_back(next_token(kv));
    kv = mix_position(kv, request, position++, output.back());
  }
  return output;
}

}  // namespace choral::sched
