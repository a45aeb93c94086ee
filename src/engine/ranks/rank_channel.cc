#include "engine/ranks/rank_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/log.h"

namespace choral::engine {

std::string RankChannel::name_of(int rank) const {
  const auto at = static_cast<size_t>(rank);
  return at < hosts_.size() ? fmt::format("rank {} ({})", rank, hosts_[at]) : fmt::format("rank {}", rank);
}

void RankChannel::mark_lost(int rank, std::string_view how) {
  if (!lost_.ok()) return;
  lost_ = unavailable("{} {}; the model is divided over {} ranks, and none of them can go on: start them again", name_of(rank),
                      how, ranks());
  if (on_lost_) on_lost_(lost_);
}

std::string RankChannel::silence_text(double limit_s) {
  return fmt::format("has said nothing for {:g} s (--rank-timeout)", limit_s);
}

double RankChannel::Silence::pause() {
  constexpr double kFraction = 0.02, kShortestS = 20e-6, kLongestS = 2e-3, kLongestPauseS = 0.5;
  std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(seconds * kFraction, kShortestS, kLongestS)));
  const double now = now_s();
  if (seen > 0) seconds += std::min(now - seen, kLongestPauseS);
  seen = now;
  return seconds;
}

Status RankChannel::finish(int rank, RankLink::Transfer transfer, RankLink::Message& message) {
  auto progress = RankLink::Progress::kGoesOn;
  CHORAL_RETURN_IF_ERROR(wait(rank, [&] {
    progress = link_->look(transfer, message);
    return progress != RankLink::Progress::kGoesOn;
  }));
  return progress == RankLink::Progress::kDone ? Status() : lose(rank, "can't be reached any more");
}

Status RankChannel::send(int to, RankTag tag, std::string_view bytes) {
  CHORAL_RETURN_IF_ERROR(lost_);
  RankLink::Message none;
  return finish(to, link_->send(to, static_cast<int>(tag), bytes), none);
}

void RankChannel::begin_send_to_all(RankTag tag, std::string_view bytes) {
  sent_.clear();
  for (int r = 0; r < ranks(); ++r) sent_.push_back(r == rank() ? 0 : link_->send(r, static_cast<int>(tag), bytes));
}

Status RankChannel::finish_send_to_all() {
  RankLink::Message none;
  for (int r = 0; r < ranks(); ++r) {
    if (r != rank()) CHORAL_RETURN_IF_ERROR(finish(r, sent_[static_cast<size_t>(r)], none));
  }
  return {};
}

Status RankChannel::send_to_all(RankTag tag, std::string_view bytes) {
  CHORAL_RETURN_IF_ERROR(lost_);
  begin_send_to_all(tag, bytes);
  return finish_send_to_all();
}

Status RankChannel::take(int from, const RankLink::Message& message, std::string& bytes) {
  bytes.resize(static_cast<size_t>(message.bytes));
  RankLink::Message taken;
  return finish(from, link_->receive(from, bytes.data(), message.bytes), taken);
}

Result<RankTag> RankChannel::receive_any(int from, std::string& bytes) {
  RankLink::Message message;
  CHORAL_RETURN_IF_ERROR(wait(from, [&] { return link_->peek(from, message); }));
  CHORAL_RETURN_IF_ERROR(take(from, message, bytes));
  return static_cast<RankTag>(message.tag);
}

Status RankChannel::receive(int from, RankTag tag, std::string& bytes) {
  CHORAL_TRY(const RankTag got, receive_any(from, bytes));
  return got == tag ? Status() : lose(from, "is at another point of the program");
}

Status RankChannel::await(int from, RankTag tag, std::string& bytes) {
  RankLink::Message message;
  CHORAL_RETURN_IF_ERROR(wait_for(from, std::numeric_limits<double>::infinity(), [&] { return link_->peek(from, message); }));
  return receive(from, tag, bytes);
}

void RankChannel::wait_loudly(int from) {
  constexpr double kToldEachS = 30;
  RankLink::Message message;
  Silence silence;
  double next_s = kToldEachS;
  budget_.wait([&] { return link_->peek(from, message); },
               [&] {
                 if (silence.pause() < next_s) return;
                 next_s += kToldEachS;
                 CHORAL_LOG(kWarn, "{} waits for {}, which has said nothing for {:.0f} s: it reads files, or is stopped",
                            name_of(rank()), name_of(from), silence.seconds);
               });
}

Status RankChannel::receive_late(int from, RankTag tag, std::string& bytes) {
  CHORAL_RETURN_IF_ERROR(lost_);
  wait_loudly(from);
  return receive(from, tag, bytes);
}

Result<std::vector<std::string>> RankChannel::exchange(std::string own) {
  CHORAL_RETURN_IF_ERROR(lost_);
  begin_send_to_all(RankTag::kReply, own);  // a long message is on its way until it is received
  std::vector<std::string> all(static_cast<size_t>(ranks()));
  for (int r = 0; r < ranks(); ++r) {
    if (r != rank()) CHORAL_RETURN_IF_ERROR(receive_late(r, RankTag::kReply, all[static_cast<size_t>(r)]));
  }
  CHORAL_RETURN_IF_ERROR(finish_send_to_all());
  all[static_cast<size_t>(rank())] = std::move(own);
  return all;
}

}  // namespace choral::engine
