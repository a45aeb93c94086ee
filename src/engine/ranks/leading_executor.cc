#include "engine/ranks/leading_executor.h"

#include "engine/ranks/rank_commands.h"

namespace choral::engine {

Result<std::unique_ptr<LeadingExecutor>> LeadingExecutor::load(EngineOptions& options, const ModelFiles& files,
                                                               const DraftMemory& draft) {
  CHORAL_TRY(auto rank, ProcessRank::load(options, files, draft));
  return std::unique_ptr<LeadingExecutor>(new LeadingExecutor(std::move(rank)));
}

LeadingExecutor::~LeadingExecutor() {
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
  auto& own = rank_->worker().lora_manager();
  CHORAL_TRY(const auto readiness, own.add_adapter(key, std::move(voice)));
  Status there = tell(RankCommand::kAddAdapter, far);
  if (there.ok()) there = rank_->hear(/*late=*/true);  // once it has read its files
  if (there.ok()) return readiness;
  own.remove_adapter(key);
  // For unavailable() one asks again.
  if (const Status& lost = rank_->channel().lost(); !lost.ok()) return internal_error("{}", lost.message());
  static_cast<void>(tell(RankCommand::kRemoveAdapter, key));  // where that fails, the next step does too
  return there;
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
