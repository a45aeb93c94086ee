// What crosses between ranks that are processes, as bytes and back: steps, requests, and what they say while they load. The
// fields of a record are listed once for both directions; reading stops at the end of the bytes, whatever they say. Both ends are
// one program on machines of one kind: numbers stand as they are in memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/step_input.h"
#include "engine/step_output.h"

namespace choral::engine {

template <class T>
concept PlainBytes = std::is_trivially_copyable_v<T>;

class StepWriter {
 public:
  // Appends to `bytes`, whose memory is used again.
  explicit StepWriter(std::string& bytes) : bytes_(bytes) {}
  template <class... Fields>
  void operator()(const Fields&... values) {
    (put(values), ...);
  }

 private:
  template <PlainBytes T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(list.size());
    if constexpr (PlainBytes<T>) {
      bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
    } else {
      for (const T& value : list) put(value);
    }
  }
  template <class T>
  void put(const SharedList<T>& list) {
    put(std::vector<T>(list.begin(), list.end()));
  }
  void put(const Status& status) {
    put(status.code());
    put(std::string(status.message()));
  }
  template <class T>
  void put(const T& record) {
    fields(*this, record);
  }

  std::string& bytes_;
};

class StepReader {
 public:
  explicit StepReader(std::string_view bytes) : left_(bytes) {}
  template <class... Fields>
  void operator()(Fields&... values) {
    (get(values), ...);
  }
  bool ended_well() const { return !failed_ && left_.empty(); }

 private:
  std::string_view take(size_t count) {
    failed_ = failed_ || count > left_.size();
    const auto taken = failed_ ? std::string_view() : left_.substr(0, count);
    left_.remove_prefix(taken.size());
    return taken;
  }
  template <PlainBytes T>
  void get(T& value) {
    const auto bytes = take(sizeof value);
    if (!failed_) std::memcpy(&value, bytes.data(), sizeof value);
  }
  void get(std::string& text) {
    size_t size = 0;
    get(size);
    text = take(size);
  }
  template <class T>
  void get(std::vector<T>& list) {
    size_t count = 0;
    get(count);
    list.clear();
    if constexpr (PlainBytes<T>) {
      const auto bytes = take(count <= left_.size() / sizeof(T) ? count * sizeof(T) : SIZE_MAX);
      list.resize(bytes.size() / sizeof(T));
      if (!list.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    } else {
      for (; count > 0 && !failed_; --count) get(list.emplace_back());  // each takes a byte at least
    }
  }
  template <class T>
  void get(SharedList<T>& list) {
    std::vector<T> items;
    get(items);
    list = std::move(items);
  }
  void get(Status& status) {
    Code code{};
    std::string message;
    get(code);
    get(message);
    status = code == Code::kOk ? Status() : Status(code, message);
  }
  template <class T>
  void get(T& record) {
    fields(*this, record);
  }

  std::string_view left_;
  bool failed_ = false;
};

// `Record` is one of these, const when it is written.
template <class Record, class Of>
concept RecordOf = std::same_as<std::remove_const_t<Record>, Of>;

void fields(auto& io, RecordOf<kernels::DryBreaker> auto& r) { io(r.token, r.rest); }
void fields(auto& io, RecordOf<SamplingRule> auto& r) {
  io(r.settings, r.penalties, r.penalty_last_n, r.dry, r.dry_breakers, r.xtc_probability, r.seed, r.min_tokens, r.logprobs,
     r.logprob_ids, r.prompt_logprobs, r.stop_ids, r.allowed_ids, r.bias, r.bad_words);
}
void fields(auto& io, RecordOf<NewRequest> auto& r) { io(r.id, r.prompt, r.max_length, r.rule, r.pooling); }
void fields(auto& io, RecordOf<StepInput> auto& r) {
  io(r.dropped, r.items, r.segments, r.block_updates, r.token_ids, r.block_ids, r.mask_words, r.state_runs, r.total_tokens,
     r.has_prefill);
}
void fields(auto& io, RecordOf<SampledToken> auto& r) { io(r.token, r.logprob, r.top_begin, r.top_count, r.status); }
void fields(auto& io, RecordOf<PositionLogprobs> auto& r) { io(r.chosen, r.top); }
void fields(auto& io, RecordOf<StepOutput> auto& r) {
  io(r.items, r.tokens, r.top, r.prompt_logprobs, r.row_logits, r.embeddings, r.host_copies, r.host_copied_bytes);
}

template <class... Records>
std::string to_bytes(const Records&... records) {
  std::string bytes;
  StepWriter writer(bytes);
  writer(records...);
  return bytes;
}

// False when the bytes end too early or too late.
template <class... Records>
bool from_bytes(std::string_view bytes, Records&... records) {
  StepReader reader(bytes);
  reader(records...);
  return reader.ended_well();
}

}  // namespace choral::engine
