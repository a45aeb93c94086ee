// The thread that writes slots while steps run, one after the other, in the order they were begun. A slot is not read until the
// engine's thread has taken its end, so the two threads share only the two lists here. Engine thread, but for the wake.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lora/stacked/slot_write.h"
#include "platform/side_copies.h"

namespace choral::lora {

struct SlotUpload {
  int32_t slot = 0;
  SlotWrite write;
  // When it has ended: fine, or why the slot's voice can't be had.
  Status made = {};
  Status device = {};  // not fine: the device itself fails
};

class SlotUploads {
 public:
  static Result<std::unique_ptr<SlotUploads>> start(std::unique_ptr<platform::SideCopies> copies);
  // What has not ended by then is left as it is.
  ~SlotUploads();

  // Called by the thread whenever take() has something new. Once this returns the one before is not called any more.
  void set_wake(std::function<void()> wake);
  void begin(SlotUpload upload);
  // Appends those that ended.
  void take(std::vector<SlotUpload>& ended);

 private:
  explicit SlotUploads(std::unique_ptr<platform::SideCopies> copies) : copies_(std::move(copies)) {}
  void run();
  void carry_out(SlotUpload& upload);

  std::unique_ptr<platform::SideCopies> copies_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<SlotUpload> waiting_;
  std::vector<SlotUpload> ended_;
  size_t begun_ = 0;  // and not taken
  std::function<void()> wake_;
  std::thread thread_;
};

}  // namespace choral::lora
