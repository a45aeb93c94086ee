// The memory of one emulated device: a range of addresses that faults whoever touches it, but for the time of a piece of queued
// work. What is taken is noise at its ends and what lay there between, what is given back becomes noise. Under the runtime's
// lock.
#pragma once

#include <cstdint>
#include <map>

namespace cuda_emulation {

class DeviceMemory {
 public:
  static constexpr uint64_t kReservedBytes = uint64_t{8} << 30;

  // Null: no room within `limit`.
  void* take(uint64_t bytes, uint64_t limit);
  bool give(const void* memory);
  uint64_t used() const { return used_; }
  uint64_t most_used() const { return most_used_; }  // since nothing was
  // Whether [memory, memory + bytes) lies in one allocation.
  bool holds(const void* memory, uint64_t bytes) const;
  // Whether any of it is device memory.
  bool is_device(const void* memory) const;
  void zero(void* memory, uint64_t bytes);

  // Open to this process while one lives.
  class Window {
   public:
    explicit Window(DeviceMemory& memory);
    ~Window();
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  unsigned char* base();
  void fill_with_noise(uint64_t begin, uint64_t size);

  unsigned char* base_ = nullptr;
  std::map<uint64_t, uint64_t> blocks_;  // begin -> end, offsets
  uint64_t used_ = 0, most_used_ = 0;
  int windows_ = 0;
};

}  // namespace cuda_emulation
