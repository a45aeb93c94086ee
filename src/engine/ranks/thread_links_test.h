// A link between threads that play processes: messages are copied from queue to queue. Tests only.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/ranks/rank_channel.h"

namespace choral::engine {

class ThreadLinks {
 public:
  // The links of so many ranks. `floats`: counts those of messages that are parts of a matrix.
  static std::vector<std::shared_ptr<RankLink>> make(int ranks, std::atomic<int64_t>* floats = nullptr) {
    auto post = std::make_shared<Post>(ranks);
    post->floats = floats;
    std::vector<std::shared_ptr<RankLink>> links;
    for (int r = 0; r < ranks; ++r) links.push_back(std::make_shared<Link>(post, r, ranks));
    return links;
  }

 private:
  // Longer ones are on their way until they are received, as with MPI.
  static constexpr size_t kShort = 64;
  struct Letter {
    int tag = 0;
    std::string bytes;
    std::shared_ptr<bool> received;
  };
  // What each has sent to each and is not received yet.
  struct Post {
    explicit Post(int ranks) : boxes(static_cast<size_t>(ranks), std::vector<std::deque<Letter>>(static_cast<size_t>(ranks))) {}
    std::mutex mutex;
    std::vector<std::vector<std::deque<Letter>>> boxes;
    std::atomic<int64_t>* floats = nullptr;
  };

  class Link : public RankLink {
   public:
    Link(std::shared_ptr<Post> post, int rank, int ranks) : post_(std::move(post)), rank_(rank), ranks_(ranks) {}

    int rank() const override { return rank_; }
    int ranks() const override { return ranks_; }
    Transfer send(int to, int tag, std::string_view bytes) override {
      const std::lock_guard lock(post_->mutex);
      auto received = std::make_shared<bool>(bytes.size() <= kShort);
      if (post_->floats != nullptr && tag == static_cast<int>(RankTag::kPart)) {
        *post_->floats += static_cast<int64_t>(bytes.size() / sizeof(float));
      }
      box(rank_, to).push_back({tag, std::string(bytes), received});
      return begin({-1, nullptr, 0, std::move(received)});
    }
    Transfer receive(int from, char* room, int64_t bytes) override { return begin({from, room, bytes, nullptr}); }
    Progress look(Transfer transfer, Message& message) override {
      const std::lock_guard lock(post_->mutex);
      const auto [from, room, bytes, sent] = begun_[transfer];
      if (sent != nullptr && !*sent) return Progress::kGoesOn;
      if (from >= 0) {
        auto& letters = box(from, rank_);
        if (letters.empty()) return Progress::kGoesOn;
        const Letter letter = std::move(letters.front());
        letters.pop_front();
        *letter.received = true;
        message = {letter.tag, static_cast<int64_t>(letter.bytes.size())};
        if (message.bytes > bytes) return Progress::kFailed;
        std::memcpy(room, letter.bytes.data(), letter.bytes.size());
      }
      free_.push_back(transfer);
      return Progress::kDone;
    }
    bool peek(int from, Message& message) override {
      const std::lock_guard lock(post_->mutex);
      const auto& letters = box(from, rank_);
      if (letters.empty()) return false;
      message = {letters.front().tag, static_cast<int64_t>(letters.front().bytes.size())};
      return true;
    }
    void end_together() override {}

   private:
    struct Begun {
      int from = -1;
      char* room = nullptr;
      int64_t bytes = 0;
      std::shared_ptr<bool> received;  // of what is sent
    };
    std::deque<Letter>& box(int from, int to) { return post_->boxes[static_cast<size_t>(from)][static_cast<size_t>(to)]; }
    Transfer begin(Begun begun) {
      if (free_.empty()) {
        free_.push_back(begun_.size());
        begun_.emplace_back();
      }
      const Transfer transfer = free_.back();
      free_.pop_back();
      begun_[transfer] = begun;
      return transfer;
    }

    const std::shared_ptr<Post> post_;
    const int rank_, ranks_;
    std::vector<Begun> begun_;
    std::vector<Transfer> free_;
  };
};

}  // namespace choral::engine
