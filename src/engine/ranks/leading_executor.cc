#include "engine/ranks/leading_executor.h"

#include <algorithm>
#include <chrono>

#include "base/thread.h"

namespace choral::engine {
namespace {

constexpr std::chrono::milliseconds kAskAgain{2};  // whether ranks have read an adapter: a message each, in a few µs

}  // namespace

Result<std::unique_ptr<LeadingExecutor>> LeadingExecutor::load(EngineOptions& options, const ModelFiles& files,
                                                               const DraftMemory& draft) {
  CHORAL_TRY(auto rank, ProcessRank::load(options, files, draft));
  std::unique_ptr<LeadingExecutor> made(new LeadingExecutor(std::move(rank)));
  CHORAL_RETURN_IF_ERROR(made->start());
  return made;
}

Status LeadingExecutor::start() {
  CHORAL_TRY(alarm_, start_thread("the thread that asks ranks for adapters", [this] { run_alarm(); }));
  return {};
}

LeadingExecutor::~LeadingExecutor() {
  {
    const std::lock_guard lock(alarm_mutex_);
    stop_ = true;
  }
  alarm_changed_.notify_all();
  if (alarm_.joinable()) alarm_.join();
  if (tell(RankCommand::kEnd).ok()) rank_->channel().link().end_together();
}

template <class... Records>
Status LeadingExecutor::tell(const Records&... command) {
  told_.clear();
  StepWriter{told_}(command...);
  return rank_->channel().send_to_all(RankTag::kCommand, told_);
}

Result<lora::Readiness> LeadingExecutor::add_adapter(lora::AdapterKey key, lora::PackedVoice voice) {
  FarVoice far{key, {}};
  for (const auto& [adapter, factor] : voice) {
    if (!adapter->source() || adapter->source()->in_memory()) {
      return unsupported(
          "an adapter that was given as bytes cannot be used: the model is divided over processes, and each reads adapters from "
          "its machine's files; give it as a folder");
    }
    far.terms.push_back({adapter->source()->path().string(), adapter->digest(), adapter->replaces(), factor});
  }
  const auto is_same = [&](const FarVoice& other) { return other.key == key; };
  if (std::any_of(coming_.begin(), coming_.end(), is_same)) return lora::Readiness::kComing;
  CHORAL_TRY(const auto are_read, prepare({far}));
  if (!are_read.front()) {
    coming_.push_back(std::move(far));
    note_coming();
    return lora::Readiness::kComing;
  }
  auto& own = rank_->worker().lora_manager();
  CHORAL_TRY(const auto readiness, own.add_adapter(key, std::move(voice)));
  Status there = tell(RankCommand::kAddAdapter, far);
  if (there.ok()) there = rank_->hear(/*late=*/true);  // should it have to read files again
  if (there.ok()) return readiness;
  own.remove_adapter(key);
  // For unavailable() one asks again.
  if (const Status& lost = rank_->channel().lost(); !lost.ok()) return internal_error("{}", lost.message());
  static_cast<void>(tell(RankCommand::kRemoveAdapter, key));  // where that fails, the next step does too
  return there;
}

Result<std::vector<bool>> LeadingExecutor::prepare(const std::vector<FarVoice>& voices) {
  RankChannel& channel = rank_->channel();
  const auto lost = [&] { return internal_error("{}", channel.lost().message()); };  // for unavailable() one asks again
  if (!tell(RankCommand::kPrepareAdapter, voices).ok()) return lost();
  std::vector<bool> all(voices.size(), true);
  for (int r = 1; r < channel.ranks(); ++r) {
    std::string bytes;
    std::vector<uint8_t> are_read;
    if (!channel.receive(r, RankTag::kReply, bytes).ok()) return lost();
    if (!from_bytes(bytes, are_read) || are_read.size() != voices.size()) {
      channel.mark_lost(r, "sent an answer that can't be read");
      return lost();
    }
    for (size_t i = 0; i < all.size(); ++i) all[i] = all[i] && are_read[i] != 0;
  }
  return all;
}

void LeadingExecutor::take_adapters() {
  if (coming_.empty()) return;
  const auto are_read = prepare(coming_);
  if (!are_read.ok()) {
    coming_.clear();  // who asks again is told why
  } else {
    size_t i = 0;
    std::erase_if(coming_, [&](const FarVoice&) { return (*are_read)[i++]; });
  }
  note_coming();
}

void LeadingExecutor::note_coming() {
  {
    const std::lock_guard lock(alarm_mutex_);
    is_anything_coming_ = !coming_.empty();
  }
  alarm_changed_.notify_all();
}

void LeadingExecutor::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(alarm_mutex_);
  wake_ = std::move(wake);
}

void LeadingExecutor::run_alarm() {
  std::unique_lock lock(alarm_mutex_);
  for (;;) {
    alarm_changed_.wait(lock, [this] { return stop_ || is_anything_coming_; });
    alarm_changed_.wait_for(lock, kAskAgain, [this] { return stop_; });
    if (stop_) return;
    if (wake_) wake_();
  }
}

void LeadingExecutor::remove_adapter(lora::AdapterKey key) {
  rank_->worker().lora_manager().remove_adapter(key);
  static_cast<void>(tell(RankCommand::kRemoveAdapter, key));  // where that fails, the next step does too
}

Status LeadingExecutor::add_request(const NewRequest& request) {
  CHORAL_RETURN_IF_ERROR(rank_->worker().add_request(request));
  Status there = tell(RankCommand::kAddRequest, request);
  if (there.ok()) there = rank_->hear(/*late=*/false);
  if (there.ok()) return {};
  rank_->worker().drop_request(request.id);
  static_cast<void>(tell(RankCommand::kDropRequest, request.id));
  return there;
}

Status LeadingExecutor::execute_model(const StepInput& input, StepOutput& out) {
  CHORAL_RETURN_IF_ERROR(tell(RankCommand::kStep, input));
  return rank_->execute_model(input, out);
}

}  // namespace choral::engine
