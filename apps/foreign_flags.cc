#include "foreign_flags.h"

#include <algorithm>
#include <iterator>

namespace choral::apps {
namespace {

struct ForeignFlag {
  std::string_view name, instead;
};
constexpr std::string_view kStep = "--max-num-batched-tokens N";
constexpr std::string_view kHub = "org/name as MODEL, which `choral pull org/name` fetches";
constexpr std::string_view kCacheType = "--kv-cache-dtype TYPE, for keys and values";
constexpr std::string_view kDevice = "--device NAME: a device takes all layers or none";
constexpr std::string_view kAttention = "nothing: attention is always computed without its matrix of scores";
constexpr std::string_view kOneProcess = "nothing: a model runs in one process";
constexpr std::string_view kMemory = "nothing: weights are packed once and the file is let go";
constexpr std::string_view kLogs = "--access-log FORM; prompts are never logged";
constexpr std::string_view kAlways = "nothing: it is always so";
constexpr ForeignFlag kForeign[] = {
    {"-b", kStep},
    {"-cnv", "`choral chat`"},
    {"-ctk", kCacheType},
    {"-ctv", kCacheType},
    {"-fa", kAttention},
    {"-hf", kHub},
    {"-hfr", kHub},
    {"-ngl", kDevice},
    {"-np", "--max-num-seqs N"},
    {"-sys", "--system TEXT"},
    {"-tb", "--threads N, which prompts have too"},
    {"-tp", kOneProcess},
    {"-ub", kStep},
    {"--batch-size", kStep},
    {"--cache-type-k", kCacheType},
    {"--cache-type-v", kCacheType},
    {"--chat-template-file", "--chat-template FILE"},
    {"--cont-batching", kAlways},
    {"--disable-log-requests", kLogs},
    {"--enable-auto-tool-choice", kAlways},
    {"--enable-lora", kAlways},
    {"--enforce-eager", kAlways},
    {"--flash-attn", kAttention},
    {"--gpu-layers", kDevice},
    {"--gpu-memory-utilization", "--kv-cache-memory SIZE and --adapter-memory SIZE"},
    {"--hf-repo", kHub},
    {"--jinja", kAlways},
    {"--kv-cache-memory-bytes", "--kv-cache-memory SIZE"},
    {"--lora-scaled", "--lora PATH, and NAME:FACTOR for --adapter or `model`"},
    {"--max-logprobs", "nothing: a request may ask for up to 100"},
    {"--metrics", "nothing: GET /metrics is always there"},
    {"--mlock", kMemory},
    {"--n-gpu-layers", kDevice},
    {"--no-mmap", kMemory},
    {"--parallel", "--max-num-seqs N, each of which may use the whole context"},
    {"--pipeline-parallel-size", kOneProcess},
    {"--slots", "GET /metrics and GET /v1/lora_adapters"},
    {"--swap-space", "nothing: what is preempted is computed again"},
    {"--tensor-parallel-size", kOneProcess},
    {"--threads-batch", "--threads N, which prompts have too"},
    {"--trust-remote-code", "nothing: no model brings code"},
    {"--ubatch-size", kStep},
};

}  // namespace

std::string_view said_here(std::string_view flag) {
  const auto* known = std::find_if(std::begin(kForeign), std::end(kForeign), [&](const auto& f) { return f.name == flag; });
  return known != std::end(kForeign) ? known->instead : std::string_view();
}

}  // namespace choral::apps
