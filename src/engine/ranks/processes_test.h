// An engine that several processes share, which threads play. Tests only.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "choral/llm.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/thread_links_test.h"

namespace choral::engine {

class Processes {
 public:
  // `options` of each.
  explicit Processes(std::vector<EngineOptions> options) {
    const auto links = ThreadLinks::make(static_cast<int>(options.size()), &floats_);
    for (size_t r = 0; r < options.size(); ++r) options[r].rank_link = links[r];
    ended_.resize(options.size());
    for (size_t r = 1; r < options.size(); ++r) {
      followers_.emplace_back([this, r, own = options[r]] { ended_[r] = follow_first_rank(own); });
    }
    auto loaded = LLM::load(options[0]);
    status_ = loaded.status();
    if (loaded.ok()) llm_ = std::move(*loaded);
  }
  ~Processes() { end(); }

  LLM* llm() { return llm_.get(); }
  const Status& status() const { return status_; }
  // That were sent as parts of matrices so far.
  int64_t floats() const { return floats_; }
  // How the followers ended.
  const std::vector<Status>& end() {
    llm_.reset();
    for (auto& follower : followers_) follower.join();
    followers_.clear();
    return ended_;
  }

 private:
  std::atomic<int64_t> floats_{0};
  std::vector<std::thread> followers_;
  std::vector<Status> ended_;
  Status status_;
  std::unique_ptr<LLM> llm_;
};

}  // namespace choral::engine
