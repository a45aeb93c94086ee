// Whole messages between ranks, with a limit on how long one waits for another. A rank that does not answer in time is lost, and
// with it the model: from then on everything fails at once with the same words. One thread at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/spin_budget.h"
#include "engine/ranks/rank_link.h"

namespace choral::engine {

// What a message is.
enum class RankTag : int {
  kCommand = 1,  // of the first rank to another
  kReply,        // to it
  kPart,         // of a matrix that is gathered
  kEnded,        // the sender is through with its step
  kFailed,       // the same, and its step is of no use
};

class RankChannel {
 public:
  // `on_lost` is called once.
  RankChannel(std::shared_ptr<RankLink> link, double timeout_s, std::function<void(const Status&)> on_lost = {})
      : link_(std::move(link)), timeout_s_(timeout_s), on_lost_(std::move(on_lost)) {}

  RankLink& link() { return *link_; }
  int rank() const { return link_->rank(); }
  int ranks() const { return link_->ranks(); }
  // Where each rank is, for errors.
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }
  std::string name_of(int rank) const;

  // unavailable once a rank is lost.
  const Status& lost() const { return lost_; }
  void mark_lost(int rank, std::string_view how);
  const Status& lose(int rank, std::string_view how) {
    mark_lost(rank, how);
    return lost_;
  }

  Status send(int to, RankTag tag, std::string_view bytes);
  // To every other rank.
  Status send_to_all(RankTag tag, std::string_view bytes);
  Status receive(int from, RankTag tag, std::string& bytes);
  // The same, however long it takes to come, of one that has work to do first; every half a minute it is told of.
  Status receive_late(int from, RankTag tag, std::string& bytes);
  // The same of one that may have nothing to say.
  Status await(int from, RankTag tag, std::string& bytes);
  // The same of whatever comes next.
  Result<RankTag> receive_any(int from, std::string& bytes);
  // What every rank has to say to all, in their order, however long one of them takes; it is told of. All of them call it.
  Result<std::vector<std::string>> exchange(std::string own);

  // Waits until is_over(), which asks for what `rank` does.
  template <class IsOver>
  Status wait(int rank, const IsOver& is_over) {
    return wait_for(rank, timeout_s_, is_over);
  }
  Status finish(int rank, RankLink::Transfer transfer, RankLink::Message& message);

 private:
  // How long nothing came. Of a program that was stopped for a while itself, half a second counts.
  struct Silence {
    double seconds = 0, seen = 0;
    // Sleeps for a fraction of it.
    double pause();
  };

  template <class IsOver>
  Status wait_for(int rank, double limit_s, const IsOver& is_over) {
    CHORAL_RETURN_IF_ERROR(lost_);
    Silence silence;
    budget_.wait([&] { return !lost_.ok() || is_over(); },
                 [&] {
                   if (silence.pause() > limit_s) mark_lost(rank, silence_text(limit_s));
                 });
    return lost_;
  }
  static std::string silence_text(double limit_s);
  void wait_loudly(int from);
  void begin_send_to_all(RankTag tag, std::string_view bytes);
  Status finish_send_to_all();
  Status take(int from, const RankLink::Message& message, std::string& bytes);

  const std::shared_ptr<RankLink> link_;
  const double timeout_s_;
  const std::function<void(const Status&)> on_lost_;
  std::vector<std::string> hosts_;
  std::vector<RankLink::Transfer> sent_;  // by send_to_all()
  SpinBudget budget_;
  Status lost_;
};

}  // namespace choral::engine
