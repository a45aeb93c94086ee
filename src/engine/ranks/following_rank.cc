#include "engine/ranks/following_rank.h"

#include "base/out_of_memory.h"
#include "engine/options_check.h"
#include "engine/ranks/far_adapters.h"
#include "engine/ranks/process_rank.h"
#include "engine/ranks/rank_commands.h"

namespace choral::engine {
namespace {

class FollowingRank {
 public:
  static Result<std::unique_ptr<FollowingRank>> load(EngineOptions& options) {
    CHORAL_RETURN_IF_ERROR(check_options(options));
    std::unique_ptr<FollowingRank> made(new FollowingRank());
    CHORAL_TRY(made->files_, open_model_files(options));
    CHORAL_TRY(made->rank_, ProcessRank::load(options, made->files_));
    made->files_.location.gguf.reset();  // all is read
    CHORAL_RETURN_IF_ERROR(made->start_loader(options));
    return made;
  }

  Status run() {
    for (;;) {
      CHORAL_RETURN_IF_ERROR(rank_->channel().await(0, RankTag::kCommand, message_));
      const std::string_view bytes(message_);
      const auto command = bytes.empty() ? RankCommand::kEnd : static_cast<RankCommand>(bytes.front());
      const std::string_view rest = bytes.substr(bytes.empty() ? 0 : 1);
      if (command == RankCommand::kEnd) {
        rank_->channel().link().end_together();
        return {};
      }
      CHORAL_RETURN_IF_ERROR(obey(command, rest));
    }
  }

 private:
  FollowingRank() = default;

  Status start_loader(const EngineOptions& options) {
    const ExecutorFacts& facts = rank_->facts();
    CHORAL_TRY(adapters_, FarAdapters::make(facts, {.config = facts.lora_config,
                                                    .head_dim = facts.head_dim,
                                                    .base_class = architecture_of(files_.config),
                                                    .base_names = files_.base_names,
                                                    .strict = options.strict}));
    return {};
  }

  // An error is that the rank cannot go on.
  Status obey(RankCommand command, std::string_view bytes) {
    switch (command) {
      case RankCommand::kAddRequest:
        if (!from_bytes(bytes, request_)) break;
        return reply(rank_->worker().add_request(request_));
      case RankCommand::kDropRequest:
        if (uint64_t id = 0; from_bytes(bytes, id)) {
          rank_->worker().drop_request(id);
          return {};
        }
        break;
      case RankCommand::kStep:
        if (!from_bytes(bytes, input_)) break;
        static_cast<void>(rank_->execute_model(input_, unread_));  // its error is the step's
        return rank_->channel().lost();
      case RankCommand::kPrepareAdapter:
        if (std::vector<FarVoice> voices; from_bytes(bytes, voices)) {
          std::vector<uint8_t> are_read;
          for (const FarVoice& voice : voices) are_read.push_back(adapters_->prepare(voice) ? 1 : 0);
          return rank_->channel().send(0, RankTag::kReply, to_bytes(are_read));
        }
        break;
      case RankCommand::kAddAdapter:
        if (FarVoice voice; from_bytes(bytes, voice)) {
          return reply(or_out_of_memory("the adapter cannot be loaded", [&] { return add_adapter(voice); }));
        }
        break;
      case RankCommand::kRemoveAdapter:
        if (lora::AdapterKey key = {}; from_bytes(bytes, key)) {
          rank_->worker().lora_manager().remove_adapter(key);
          return {};
        }
        break;
      case RankCommand::kEnd: return {};
    }
    return rank_->channel().lose(0, "sent a command that can't be read");
  }

  Status reply(const Status& status) { return rank_->channel().send(0, RankTag::kReply, to_bytes(status)); }

  Status add_adapter(const FarVoice& far) {
    CHORAL_TRY(auto voice, adapters_->voice_of(far));
    return rank_->worker().lora_manager().add_adapter(far.key, std::move(voice)).status();
  }

  ModelFiles files_;
  std::unique_ptr<ProcessRank> rank_;
  std::unique_ptr<FarAdapters> adapters_;
  std::string message_;
  NewRequest request_;
  StepInput input_;
  StepOutput unread_;
};

}  // namespace

Status take_ranks_of_link(EngineOptions& options) {
  const int ranks = options.rank_link->ranks();
  if (options.tensor_parallel_size != 1 && options.tensor_parallel_size != ranks) {
    return invalid_argument(
        "--tensor-parallel-size {}: {} processes were started, and each is a rank; start as many, or leave it out",
        options.tensor_parallel_size, ranks);
  }
  options.tensor_parallel_size = ranks;
  return {};
}

Status follow_first_rank(EngineOptions options) {
  CHORAL_RETURN_IF_ERROR(take_ranks_of_link(options));
  CHORAL_TRY(const auto rank, FollowingRank::load(options));
  return rank->run();
}

}  // namespace choral::engine
