#include "lora/stacked/slot_uploads.h"

#include <iterator>
#include <utility>

#include "base/thread.h"

namespace choral::lora {

Result<std::unique_ptr<SlotUploads>> SlotUploads::start(std::unique_ptr<platform::SideCopies> copies) {
  std::unique_ptr<SlotUploads> uploads(new SlotUploads(std::move(copies)));
  CHORAL_TRY(uploads->thread_,
             start_thread("the thread that brings adapters to the device", [made = uploads.get()] { made->run(); }));
  return uploads;
}

SlotUploads::~SlotUploads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SlotUploads::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

void SlotUploads::begin(SlotUpload upload) {
  {
    const std::lock_guard lock(mutex_);
    ended_.reserve(begun_ + 1);  // so that the end of one never lacks memory
    waiting_.push_back(std::move(upload));
    ++begun_;
  }
  changed_.notify_one();
}

void SlotUploads::take(std::vector<SlotUpload>& ended) {
  const std::lock_guard lock(mutex_);
  ended.insert(ended.end(), std::move_iterator(ended_.begin()), std::move_iterator(ended_.end()));
  begun_ -= ended_.size();
  ended_.clear();
}

void SlotUploads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    SlotUpload upload = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    carry_out(upload);
    lock.lock();
    ended_.push_back(std::move(upload));
    if (wake_) wake_();
  }
}

void SlotUploads::carry_out(SlotUpload& upload) {
  const auto copy = [&](std::byte* to, int64_t to_pitch, const std::byte* from, int64_t row_bytes, int64_t rows) {
    upload.device = copies_->copy(to, to_pitch, from, row_bytes, row_bytes, rows);
    return upload.device;
  };
  upload.made = upload.write.run(copy, stop_);
  Status there = copies_->finish();  // whatever became of it, nothing is on its way any more
  if (upload.device.ok()) upload.device = std::move(there);
}

}  // namespace choral::lora
