// Two flat hash tables with open addressing, made once and then only read: integers to integers, and strings to ids.
// Flat, because every merge look-up of the tokenizer goes through one: a hit is one or two cache lines, nothing is allocated.
// Thread-safety: reading from many threads is safe; building is not.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace choral::text {

inline uint64_t mix_hash(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

inline uint64_t hash_string(std::string_view s) {
  uint64_t h = s.size() * 0x9E3779B97F4A7C15u;
  const char* p = s.data();
  size_t left = s.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix_hash(h ^ word);
  }
  if (left) {
    uint64_t word = 0;
    std::memcpy(&word, p, left);
    h = mix_hash(h ^ word ^ 0xA0761D6478BD642Fu);
  }
  return h;
}

// Keys are any value but kEmpty.
class FlatMap64 {
 public:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static constexpr uint64_t kNone = ~uint64_t{0};  // find() of an absent key

  explicit FlatMap64(size_t expected = 0) { rehash(expected); }

  uint64_t find(uint64_t key) const {
    for (size_t i = mix_hash(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].value;
      if (slots_[i].key == kEmpty) return kNone;
    }
  }
  void insert_or_assign(uint64_t key, uint64_t value) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(size_ * 2 + 1);
    place(key, value);
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    uint64_t value = 0;
  };

  void place(uint64_t key, uint64_t value) {
    size_t i = mix_hash(key) & mask_;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
    size_ += slots_[i].key == kEmpty;
    slots_[i] = {key, value};
  }
  void rehash(size_t expected) {
    size_t capacity = 8;
    while (capacity < expected * 2 + 2) capacity *= 2;
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(capacity, Slot());
    mask_ = capacity - 1;
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) place(slot.key, slot.value);
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

// Strings live elsewhere (an arena of the owner) and must outlive the table.
class StringTable {
 public:
  explicit StringTable(size_t expected = 0) { rehash(expected); }

  // The id, or -1.
  int32_t find(std::string_view text) const {
    const uint64_t hash = hash_string(text);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return -1;
      if (slot.tag == tag && slot.size == text.size() && std::memcmp(slot.data, text.data(), text.size()) == 0) return slot.id;
    }
  }
  void insert_or_assign(std::string_view text, int32_t id) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(size_ * 2 + 1);
    const uint64_t hash = hash_string(text);
    size_t i = hash & mask_;
    while (slots_[i].id >= 0 && std::string_view(slots_[i].data, slots_[i].size) != text) i = (i + 1) & mask_;
    size_ += slots_[i].id < 0;
    slots_[i] = {text.data(), static_cast<uint32_t>(text.size()), static_cast<uint32_t>(hash >> 32), id};
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t size = 0;
    uint32_t tag = 0;
    int32_t id = -1;
  };

  void rehash(size_t expected) {
    size_t capacity = 8;
    while (capacity < expected * 2 + 2) capacity *= 2;
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(capacity, Slot());
    mask_ = capacity - 1;
    for (const Slot& slot : old) {
      if (slot.id < 0) continue;
      size_t i = hash_string({slot.data, slot.size}) & mask_;
      while (slots_[i].id >= 0) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace choral::text
