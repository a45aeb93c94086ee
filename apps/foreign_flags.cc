#include "foreign_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace choral::apps {
namespace {

using enum ForeignFlag::Value;

// One of `list`'s words.
bool has_word(std::string_view list, std::string_view word) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(' ', at), list.size());
    if (list.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

constexpr std::string_view kAny = "*";
constexpr std::string_view kNever = "";
constexpr std::string_view kAlways = "nothing: it is always so";
constexpr std::string_view kNoSwitch = "nothing: it is always so and cannot be switched off";
constexpr std::string_view kStep = "--max-num-batched-tokens N";
constexpr std::string_view kHub = "org/name as MODEL, which `choral pull org/name` fetches";
constexpr std::string_view kCacheType = "--kv-cache-dtype TYPE, for keys and values";
constexpr std::string_view kDevice = "--device NAME: a device takes all layers or none";
constexpr std::string_view kAttention = "nothing: attention is always computed without its matrix of scores";
constexpr std::string_view kOneProcess = "nothing: a model runs in one process";
constexpr std::string_view kMemory = "nothing: weights are packed once and the file is let go";
constexpr std::string_view kLogs = "--access-log FORM; prompts are never logged";
constexpr std::string_view kLogLevel = "the variable CHORAL_LOG_LEVEL, on standard error";
constexpr std::string_view kCpus = "--cpu-list 0-7,16; numactl in front of the command places memory; --threads N";
constexpr std::string_view kPriority = "nice in front of the command";
constexpr std::string_view kRope = "nothing: the model's files say how positions are turned";
constexpr std::string_view kSamplers =
    "nothing: the filters of `choral generate --help` stand in one order, and there are no others";
constexpr std::string_view kForms = "`structured_outputs` or `response_format` of a request or of a line of --input";
constexpr std::string_view kSpeculation = "--speculative ngram, draft=MODEL or off: guesses are weighed step by step";
constexpr std::string_view kWeighed = "nothing: the longest match counts, and guesses are weighed before each step";
constexpr std::string_view kSlots = "nothing: there are no slots; any answer may use the whole context";
constexpr std::string_view kTextOnly = "nothing: models read text alone";
constexpr std::string_view kNoPage = "nothing: the console at / has no such setting";
constexpr std::string_view kProxy = "a proxy in front of the server";
constexpr std::string_view kTools = "nothing: tools are the client's to run";
constexpr std::string_view kTemplate = "`chat_template_kwargs` of a request";
constexpr std::string_view kRequest = "a field of each request; without it the model's own files count";
constexpr std::string_view kThoughts = "--reasoning-parser NAME: without it the chat template says how thoughts are read";
constexpr std::string_view kChat = "`choral chat`, where it goes without saying";
constexpr std::string_view kOneModel = "one server for each model";
constexpr std::string_view kPlan = "nothing: memory is planned by what is free; --kv-cache-memory SIZE sets it";
constexpr std::string_view kSteer = "--lora PATH: an adapter steers here";
constexpr std::string_view kCompiled = "nothing: nothing is compiled or captured while it runs";
constexpr std::string_view kBlocks = "--kv-cache-memory SIZE";
constexpr std::string_view kTraces = "GET /metrics";
constexpr std::string_view kPooling = "nothing: the model's files say how embeddings are made";

constexpr ForeignFlag kForeign[] = {
    // llama.cpp: what runs where
    {"-tb --threads-batch", kOne, kNever, "--threads N, which prompts have too"},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch", kOne, kNever,
     kCpus},
    {"--prio --prio-batch", kOne, "0", kPriority},
    {"--poll --poll-batch --threads-http", kOne, kAny, "nothing: threads wait as long as it pays"},
    {"-b --batch-size -ub --ubatch-size", kOne, kNever, kStep},
    {"-fa --flash-attn", kMaybe, kAny, kAttention},
    {"-nkvo --no-kv-offload -kvo --kv-offload --no-host --op-offload --no-op-offload", kNone, kAny,
     "nothing: the cache lies where the layers are"},
    {"--repack --no-repack -nr --swa-full --perf --no-perf --warmup --no-warmup --backend-sampling -bs --show-timings "
     "--no-show-timings",
     kNone, kAny, "nothing: it is about speed there, and here nothing has to be chosen"},
    {"-dt --defrag-thold", kOne, kAny, "nothing: the cache is made of blocks and needs no order"},
    {"-ctk --cache-type-k -ctv --cache-type-v", kOne, kNever, kCacheType},
    {"--rpc", kOne, kNever, kOneProcess},
    {"--mlock --mmap --no-mmap --direct-io --no-direct-io -dio -ndio", kNone, kAny, kMemory},
    {"-lm --load-mode -lzm --lazy-mode", kOne, kAny, kMemory},
    {"-dev", kOne, "none", kDevice},
    {"--list-devices", kNone, kNever, "`choral doctor`"},
    {"-ngl --gpu-layers --n-gpu-layers", kOne, "0 auto", kDevice},
    {"-cmoe --cpu-moe", kNone, kAny, kDevice},
    {"-ncmoe --n-cpu-moe -ncffn --n-cpu-ffn --moe-cache-mib", kOne, kAny, kDevice},
    {"-ot --override-tensor -ts --tensor-split", kOne, kNever, kDevice},
    {"-sm --split-mode", kOne, "none", kDevice},
    {"-mg --main-gpu", kOne, "0", "--device NAME:1 for the second one"},
    {"-fit --fit", kMaybe, kAny, kPlan},
    {"-fitt --fit-target -fitc --fit-ctx", kOne, kNever, kPlan},
    // … which model
    {"-mu --model-url -dr --docker-repo -hf -hfr --hf-repo --hf-repo-v --model-tag", kOne, kNever, kHub},
    {"-hff --hf-file", kOne, kNever, "`choral pull org/name --file NAME`, and the path that it prints"},
    {"-hft --hf-token", kOne, kNever, "the variable HF_TOKEN of `choral pull`"},
    {"--offline", kNone, kAny, "nothing: only `choral pull` uses the network"},
    {"--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec "
     "--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default "
     "--vision-gemma-12b-default",
     kNone, kNever, kHub},
    {"--check-tensors", kNone, kNever, "`choral eval`: a broken model shows in its perplexity"},
    {"--override-kv", kOne, kNever, "nothing: the file's own metadata count"},
    {"--lora-scaled", kOne, kNever, "--lora PATH, and NAME:FACTOR for --adapter or `model`"},
    {"--lora-init-without-apply", kNone, kAny, "nothing: an adapter acts for the requests that name it"},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", kOne, kNever, kSteer},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor "
     "--yarn-beta-slow --yarn-beta-fast --rope-theta",
     kOne, kNever, kRope},
    // … what is said
    {"--log-disable", kNone, kNever, "-q, --quiet; of a server also --access-log off"},
    {"--log-file", kOne, kNever, "2> FILE behind the command"},
    {"-lv --verbosity --log-verbosity", kOne, kNever, kLogLevel},
    {"--log-verbose --log-jsonl --no-log-jsonl", kNone, kNever, kLogLevel},
    {"--log-colors", kMaybe, kAny, "the variable NO_COLOR, which takes colours away"},
    {"--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --verbose-prompt --no-verbose-prompt", kNone, kAny,
     "nothing: what is said has one form"},
    {"--log-prompts-dir", kOne, kNever, "nothing: prompts are never logged"},
    {"--color", kMaybe, kAny, "the variable NO_COLOR, which takes colours away"},
    {"-co --simple-io --no-display-prompt", kNone, kAny, "nothing: standard output gets the answer alone"},
    {"--display-prompt", kNone, kNever, "nothing: standard output gets the answer alone"},
    {"--completion-bash", kNone, kNever, "`choral completion bash`"},
    {"-cl --cache-list", kNone, kNever, "`ls ~/.cache/huggingface/hub`"},
    {"--license --usage", kNone, kNever, "`choral --help`"},
    // … how tokens are chosen
    {"-s", kOne, kNever, "--seed N"},
    {"--keep", kOne, "0", "nothing: a context is never cut in silence; `choral chat` keeps the system's message"},
    {"--context-shift", kNone, kNever,
     "nothing: a context is never cut in silence; `choral chat` leaves out the oldest messages"},
    {"--no-context-shift", kNone, kAny, kAlways},
    {"--samplers --sampler-seq --sampling-seq", kOne, kNever, kSamplers},
    {"--adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat-lr --mirostat-ent", kOne, kNever, kSamplers},
    {"--mirostat", kOne, "0", kSamplers},
    {"-l --logit-bias", kOne, kNever, "`logit_bias` of a request or of a line of --input"},
    {"--grammar --grammar-file -j --json-schema -jf --json-schema-file", kOne, kNever, kForms},
    {"-r --reverse-prompt", kOne, kNever, "--stop TEXT"},
    {"-sp --special", kNone, kNever, "`skip_special_tokens` of a request or of a line of --input"},
    {"-e --escape", kNone, kNever, "$'…' of the shell, which reads \\n"},
    {"--no-escape", kNone, kAny, kAlways},
    {"--spm-infill --in-prefix-bos", kNone, kNever, "nothing: the prompt is taken as it is"},
    {"--in-prefix --in-suffix", kOne, kNever, "nothing: the prompt is taken as it is"},
    // … one conversation
    {"-cnv --conversation -i --interactive -if --interactive-first -mli --multiline-input", kNone, kNever, kChat},
    {"-no-cnv --no-conversation", kNone, kAny, "`choral generate`, where it goes without saying"},
    {"-st --single-turn", kNone, kNever, "`choral generate --chat`"},
    {"-sys --system-prompt", kOne, kNever, "--system TEXT"},
    {"-sysf --system-prompt-file", kOne, kNever, "--system \"$(cat FILE)\""},
    {"-bf --binary-file", kOne, kNever, "--file FILE"},
    {"-ptc --print-token-count", kOne, kNever, "/stats of `choral chat`"},
    {"--prompt-cache", kOne, kNever, "nothing: beginnings of prompts are kept while the program runs"},
    {"--prompt-cache-all --prompt-cache-ro", kNone, kNever, "nothing: beginnings of prompts are kept while the program runs"},
    // … the server
    {"-np --parallel", kOne, kNever, "--max-num-seqs N, each of which may use the whole context"},
    {"-cb --cont-batching --cache-prompt --slots --spec-default --rerank --reranking --jinja --no-cors-credentials", kNone, kAny,
     kAlways},
    {"-nocb --no-cont-batching", kNone, kNever, kNoSwitch},
    {"-kvu --kv-unified -no-kvu --no-kv-unified", kNone, kAny, kSlots},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step -sps "
     "--slot-prompt-similarity",
     kOne, kAny, kSlots},
    {"--kv-unified-per-slot", kOne, kNever, "--max-model-len N"},
    {"--cache-idle-slots --no-cache-idle-slots", kNone, kAny, kSlots},
    {"-cram --cache-ram", kOne, kNever, "--kv-cache-memory SIZE, of which what nobody uses keeps beginnings of prompts"},
    {"--no-cache-prompt", kNone, kNever, "--no-prefix-caching"},
    {"--cache-reuse", kOne, kAny, "nothing: equal beginnings are found block by block"},
    {"--metrics", kNone, kAny, "nothing: GET /metrics is always there"},
    {"--no-slots", kNone, kNever,
     "--api-key KEY: GET /slots tells how many answers are made, and asks for a key where there are any"},
    {"--slot-save-path", kOne, kNever, "nothing: beginnings of prompts are kept while the server runs"},
    {"--props", kNone, kNever, "the flags of `choral serve`, which stay as they are while it runs"},
    {"--embedding --embeddings", kNone, kAny, "nothing: /v1/embeddings is always there"},
    {"--pooling --embd-normalize", kOne, kNever, kPooling},
    {"--tags", kOne, kNever, "--served-model-name NAME, which may be given several times"},
    {"--reuse-port", kNone, kNever, kProxy},
    {"--path --ui-config --webui-config --ui-config-file --webui-config-file", kOne, kNever, kNoPage},
    {"--ui-mcp-proxy --webui-mcp-proxy", kNone, kNever, kNoPage},
    {"--no-ui-mcp-proxy --no-webui-mcp-proxy", kNone, kAny, kNoPage},
    {"--cors-methods --cors-headers", kOne, kNever, "--cors-origins ORIGINS: their pages may use every method and header"},
    {"--api-prefix", kOne, kNever, kProxy},
    {"--cors-credentials", kNone, kNever, "--cors-origins ORIGINS, whose pages send their key in a header and no cookies"},
    {"--tools --tools-runtime --mcp-servers-config --mcp-servers-json", kOne, kNever, kTools},
    {"-ag --agent", kNone, kNever, kTools},
    {"-no-ag --no-agent", kNone, kAny, kTools},
    {"--ssl-key-file", kOne, kNever, "--ssl-keyfile FILE"},
    {"--ssl-cert-file", kOne, kNever, "--ssl-certfile FILE"},
    {"--no-jinja", kNone, kNever, kNoSwitch},
    {"--chat-template-file", kOne, kNever, "--chat-template FILE"},
    {"--chat-template-kwargs --reasoning-effort --reasoning-budget", kOne, kNever, kTemplate},
    {"-rea --reasoning", kMaybe, "auto", kTemplate},
    {"--reasoning-format", kOne, "auto deepseek", "--reasoning-parser none, which leaves thoughts in the text"},
    {"--reasoning-budget-message --reasoning-config", kOne, kNever, kThoughts},
    {"--reasoning-preserve --no-reasoning-preserve --skip-chat-parsing --no-skip-chat-parsing", kNone, kNever, kTemplate},
    {"--prefill-assistant --no-prefill-assistant", kNone, kNever, "`add_generation_prompt` of a request"},
    {"-to --timeout", kOne, kNever, "--request-timeout SECONDS"},
    {"--sse-ping-interval", kOne, kAny, "nothing: a stream that is quiet is kept alive"},
    {"--sleep-idle-seconds", kOne, "-1", "nothing: a server keeps its model"},
    {"--models-dir --models-preset --models-max", kOne, kNever, kOneModel},
    {"--models-autoload --no-models-autoload", kNone, kNever, kOneModel},
    {"-mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device --image --audio --video --image-min-tokens --image-max-tokens "
     "--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir --media-path",
     kOne, kNever, kTextOnly},
    {"--mmproj-auto --mmproj-offload --no-mmproj-offload --no-mmproj --no-mmproj-auto", kNone, kAny, kTextOnly},
    {"-lcs --lookup-cache-static -lcd --lookup-cache-dynamic -hfd -hfrd --hf-repo-draft --spec-draft-hf -td --threads-draft "
     "-tbd --threads-batch-draft --spec-draft-threads --spec-draft-threads-batch -Cd --cpu-mask-draft -Crd --cpu-range-draft "
     "--cpu-strict-draft --prio-draft --poll-draft -Cbd --cpu-mask-batch-draft --cpu-strict-batch-draft --prio-batch-draft "
     "--poll-batch-draft --spec-draft-cpu-mask --spec-draft-cpu-range --spec-draft-cpu-strict --spec-draft-prio "
     "--spec-draft-poll --spec-draft-cpu-mask-batch --spec-draft-cpu-strict-batch --spec-draft-prio-batch "
     "--spec-draft-poll-batch --spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-n-cpu-moe "
     "--spec-draft-ncmoe -ncmoed --n-cpu-moe-draft --spec-synth-len --spec-synth-rates --spec-draft-p-split --draft-p-split "
     "--spec-draft-sampling --spec-draft-device -devd --device-draft --spec-draft-ngl -ngld --gpu-layers-draft "
     "--n-gpu-layers-draft --spec-draft-type-k -ctkd --cache-type-k-draft "
     "--spec-draft-type-v -ctvd --cache-type-v-draft --num-lookahead-slots --speculative-draft-tensor-parallel-size",
     kOne, kNever, kSpeculation},
    {"--spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling --no-spec-draft-backend-sampling", kNone, kNever,
     kSpeculation},
    {"--spec-type", kOne, "ngram-simple ngram-map-k ngram-map-k4v ngram-mod ngram-cache", kSpeculation},
    {"--draft --draft-n --spec-draft-n-max --spec-ngram-mod-n-max --spec-ngram-size-m --spec-ngram-simple-size-m "
     "--spec-ngram-map-k-size-m --spec-ngram-map-k4v-size-m",
     kOne, kNever, "--num-speculative-tokens N"},
    {"--draft-min --draft-n-min --spec-draft-n-min --spec-ngram-mod-n-min --spec-draft-p-min --draft-p-min --spec-ngram-min-hits "
     "--spec-ngram-simple-min-hits --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-min-hits --spec-ngram-size-n "
     "--spec-ngram-simple-size-n --spec-ngram-map-k-size-n --spec-ngram-map-k4v-size-n --spec-ngram-mod-n-match "
     "--ngram-prompt-lookup-max --ngram-prompt-lookup-min --speculative-disable-by-batch-size",
     kOne, kAny, kWeighed},
    {"--spec-draft-model -md", kOne, kNever, "--draft-model MODEL"},
    // … what a server has where there is no request yet
    {"--seed", kOne, kNever, "--engine-seed N"},
    {"--typical --typical-p --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --repeat-last-n --dry-multiplier "
     "--dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker",
     kOne, kNever, kRequest},
    {"-n --predict --n-predict --temp --temperature --top-k --top-p --min-p --repeat-penalty --presence-penalty "
     "--frequency-penalty",
     kOne, kNever, kRequest},
    {"--ignore-eos", kNone, kNever, kRequest},
    // vLLM: the model
    {"--task --runner", kOne, "auto generate embed classify score pooling", "nothing: a model gives what its files say"},
    {"--convert", kOne, "auto none", kPooling},
    {"--tokenizer-mode", kOne, "auto", "nothing: tokenizer.json or the GGUF file says it"},
    {"--trust-remote-code --no-trust-remote-code", kNone, kAny, "nothing: no model brings code"},
    {"--revision", kOne, kNever, "org/name@REVISION as MODEL"},
    {"--code-revision --tokenizer-revision --hf-config-path --hf-overrides --model-loader-extra-config --ignore-patterns "
     "--qlora-adapter-name-or-path",
     kOne, kNever, "nothing: a model is the files of one folder"},
    {"--download-dir", kOne, kNever, "the variable HF_HUB_CACHE"},
    {"--config-format --load-format --model-impl", kOne, "auto hf safetensors gguf",
     "nothing: the files themselves say what they are"},
    {"--use-tqdm-on-load --no-use-tqdm-on-load", kNone, kAny, "-q, --quiet, which shows no bar"},
    {"--pt-load-map-location --safetensors-load-strategy", kOne, kAny, kMemory},
    {"--generation-config", kOne, "auto",
     "nothing: the model's generation_config.json counts; a request's fields stand above it"},
    {"--override-generation-config --override-pooler-config --pooler-config", kOne, kNever, kRequest},
    {"--enforce-eager --no-enforce-eager", kNone, kAny, kCompiled},
    {"--max-seq-len-to-capture --cuda-graph-sizes --compilation-config -cc -O --cudagraph-capture-sizes "
     "--max-cudagraph-capture-size --optimization-level --attention-backend --attention-config --kernel-config",
     kOne, kAny, kCompiled},
    {"--max-logprobs", kOne, kAny, "nothing: a request may ask for up to 100"},
    {"--logprobs-mode", kOne, "raw_logprobs", "nothing: log probabilities are those of the model"},
    {"--disable-sliding-window --disable-cascade-attn --no-disable-sliding-window --no-disable-cascade-attn", kNone, kNever,
     "nothing: attention is what the model's files say"},
    {"--skip-tokenizer-init --no-skip-tokenizer-init --enable-prompt-embeds --no-enable-prompt-embeds", kNone, kNever,
     "nothing: a prompt is a text or token ids"},
    {"--enable-sleep-mode --no-enable-sleep-mode", kNone, kNever, "nothing: a server keeps its model"},
    {"--disable-async-output-proc --async-scheduling --no-async-scheduling", kNone, kAny, "nothing: it is about speed there"},
    {"--logits-processor-pattern --logits-processors", kOne, kNever, "`logit_bias` of a request"},
    {"--guided-decoding-backend --structured-outputs-config", kOne, "auto xgrammar",
     "nothing: forms of answers are kept by xgrammar where it is installed"},
    {"--enable-reasoning", kNone, kAny, kThoughts},
    {"--no-enable-reasoning", kNone, kNever, "--reasoning-parser none"},
    // … where it runs
    {"-tp", kOne, "1", "--tensor-parallel-size N"},
    {"-pp --pipeline-parallel-size -dp --data-parallel-size --data-parallel-size-local --data-parallel-backend "
     "--max-parallel-loading-workers --nnodes --api-server-count --prefill-context-parallel-size --decode-context-parallel-size",
     kOne, "1", kOneProcess},
    {"--distributed-executor-backend", kOne, "uni", kOneProcess},
    {"--data-parallel-address --data-parallel-rpc-port --data-parallel-rank --data-parallel-start-rank --master-addr "
     "--master-port --node-rank --worker-extension-cls --kv-transfer-config --ec-transfer-config "
     "--weight-transfer-config",
     kOne, kNever, kOneProcess},
    {"--enable-expert-parallel -ep --no-enable-expert-parallel --enable-eplb --data-parallel-hybrid-lb "
     "--data-parallel-external-lb --headless --ray-workers-use-nsight --enable-dbo",
     kNone, kNever, kOneProcess},
    {"--disable-custom-all-reduce --no-disable-custom-all-reduce --disable-frontend-multiprocessing "
     "--disable-nccl-for-dp-synchronization",
     kNone, kAny, kOneProcess},
    {"--block-size --prefix-caching-hash-algo --swap-space --preemption-mode", kOne, kAny,
     "nothing: blocks and their hashes are the engine's own; what is preempted is computed again"},
    {"--gpu-memory-utilization", kOne, kNever, "--kv-cache-memory SIZE and --adapter-memory SIZE"},
    {"--kv-cache-memory-bytes --num-gpu-blocks-override", kOne, kNever, kBlocks},
    {"--cpu-offload-gb", kOne, "0", kDevice},
    {"--calculate-kv-scales --no-calculate-kv-scales", kNone, kNever, "--kv-cache-dtype int8, which finds its own scales"},
    {"--kv-sharing-fast-prefill --use-v2-block-manager --disable-hybrid-kv-cache-manager --no-disable-hybrid-kv-cache-manager",
     kNone, kAny, kAlways},
    {"--mamba-cache-dtype --mamba-ssm-cache-dtype --mamba-block-size --mamba-cache-mode", kOne, kNever,
     "nothing: no model of that kind is served"},
    // … what it reads
    {"--limit-mm-per-prompt --mm-processor-kwargs --mm-processor-cache-gb --mm-processor-cache-type --mm-encoder-tp-mode "
     "--media-io-kwargs --allowed-local-media-path --allowed-media-domains --default-mm-loras --video-pruning-rate",
     kOne, kNever, kTextOnly},
    {"--disable-mm-preprocessor-cache --no-disable-mm-preprocessor-cache --disable-chunked-mm-input "
     "--no-disable-chunked-mm-input --interleave-mm-strings --skip-mm-profiling --language-model-only",
     kNone, kAny, kTextOnly},
    // … adapters
    {"--enable-lora", kNone, kAny, kAlways},
    {"--no-enable-lora", kNone, kNever, "nothing: where no adapter is given none acts"},
    {"--enable-lora-bias", kNone, kAny, kAlways},
    {"--no-enable-lora-bias", kNone, kNever, "--no-lora-bias"},
    {"--no-fully-sharded-loras", kNone, kAny, kAlways},
    {"--long-lora-scaling-factors", kOne, kNever, kRope},
    {"--enable-prompt-adapter --no-enable-prompt-adapter", kNone, kNever, kSteer},
    {"--prompt-adapters --max-prompt-adapters --max-prompt-adapter-token", kOne, kNever, kSteer},
    {"--lora-target-modules", kOne, kNever, "nothing: all modules of an adapter act"},
    // … the order of requests
    {"--max-num-partial-prefills --max-long-partial-prefills --long-prefill-token-threshold --scheduler-delay-factor "
     "--num-scheduler-steps --stream-interval",
     kOne, kNever, "--max-num-batched-tokens N, which parts long prompts"},
    {"--multi-step-stream-outputs --no-multi-step-stream-outputs", kNone, kAny, kAlways},
    {"--scheduler-cls --additional-config", kOne, kNever, "--scheduling-policy NAME"},
    // … the server
    {"--uvicorn-log-level --log-config-file", kOne, kNever, kLogLevel},
    {"--disable-uvicorn-access-log", kNone, kNever, "--access-log off"},
    {"--disable-access-log-for-endpoints --max-log-len", kOne, kNever, kLogs},
    {"--disable-log-requests --no-enable-log-requests --disable-log-stats --no-enable-log-outputs --no-enable-log-deltas", kNone,
     kAny, "nothing: prompts, answers and statistics are never logged; --access-log FORM says what is"},
    {"--enable-log-requests --enable-log-outputs --enable-log-deltas --log-error-stack", kNone, kNever, kLogs},
    {"--allowed-origins --allowed-methods --allowed-headers", kOne, kNever, "--cors-origins ORIGINS"},
    {"--root-path --middleware", kOne, kNever, kProxy},
    {"--allow-credentials", kNone, kNever, "--cors-origins ORIGINS, whose pages send their key in a header and no cookies"},
    {"--no-allow-credentials", kNone, kAny, kAlways},
    {"--ssl-cert-reqs", kOne, "0", "--ssl-ca-certs FILE: then clients must show a certificate"},
    {"--ssl-ciphers", kOne, kNever, "nothing: TLS 1.2 and 1.3 with the library's own choice"},
    {"--enable-ssl-refresh", kNone, kAny, "nothing: certificate and key are read again when they change"},
    {"--enable-request-id-headers", kNone, kAny, kAlways},
    {"--disable-fastapi-docs --enable-offline-docs", kNone, kAny, "nothing: there are no pages of documentation"},
    {"--h11-max-incomplete-event-size --h11-max-header-count", kOne, kAny, "nothing: heads and bodies have bounds of their own"},
    {"--chat-template-content-format", kOne, "auto", "nothing: the template itself says which form of messages it reads"},
    {"--trust-request-chat-template", kNone, kNever, "--chat-template FILE: a request brings no template"},
    {"--default-chat-template-kwargs", kOne, kNever, kTemplate},
    {"--response-role", kOne, "assistant", "nothing: who answers is the assistant"},
    {"--return-tokens-as-token-ids", kNone, kNever, "`return_tokens_as_token_ids` of a request"},
    {"--enable-auto-tool-choice", kNone, kAny, kAlways},
    {"--exclude-tools-when-tool-choice-none", kNone, kNever, "a request without `tools`"},
    {"--tool-parser-plugin --tool-server", kOne, kNever, "--tool-call-parser NAME; tools are the client's to run"},
    {"--enable-prompt-tokens-details", kNone, kAny, kAlways},
    {"--enable-force-include-usage", kNone, kNever, "`stream_options` of a request"},
    {"--enable-server-load-tracking --enable-per-request-metrics", kNone, kNever, kTraces},
    {"--show-hidden-metrics-for-version --otlp-traces-endpoint --collect-detailed-traces --kv-cache-metrics-sample", kOne, kNever,
     kTraces},
    {"--enable-tokenizer-info-endpoint --no-enable-tokenizer-info-endpoint --tokens-only", kNone, kNever,
     "/tokenize and /detokenize"},
    {"--fingerprint-mode --fingerprint-value", kOne, kNever, "nothing: GET /v1/models tells what is served"},
};

constexpr ForeignCommand kCommands[] = {
    {"server", "serve", ""},
    {"llama-server", "serve", ""},
    {"run", "chat", ""},
    {"cli", "generate", ""},
    {"llama-cli", "generate", ""},
    {"complete", "generate", ""},
    {"completions", "generate", ""},
    {"infer", "generate", ""},
    {"download", "pull", ""},
    {"batch", "run-batch", ""},
    {"bench serve", "", "`choral load`, which asks any server; `choral bench` times the engine in its own process"},
    {"bench throughput", "", "`choral bench MODEL`; `choral generate MODEL --input FILE` tells the tokens a second of a batch"},
    {"bench latency", "", "`choral bench MODEL`"},
    {"bench startup", "", "`choral bench MODEL`, which tells how long loading took"},
    {"bench sweep", "", "`choral bench MODEL --batch 1,8,32 --prefill 128,1024`, or `choral load` again and again"},
    {"collect-env", "", "`choral doctor`"},
    {"perplexity", "", "`choral eval MODEL --text FILE`"},
    {"list", "", "`ls ~/.cache/huggingface/hub` for models, `choral adapter list` for adapters"},
    {"ls", "", "`ls ~/.cache/huggingface/hub` for models, `choral adapter list` for adapters"},
    {"show", "", "`choral doctor MODEL`"},
    {"embed", "", "`\"embedding\": true` in a line of `choral generate MODEL --input FILE`"},
};

}  // namespace

bool ForeignFlag::changes_nothing(std::string_view with) const { return fine == kAny || has_word(fine, with); }

std::string ForeignFlag::note(std::string_view typed) const {
  constexpr std::string_view kNothing = "nothing: ";
  if (instead.starts_with(kNothing)) return fmt::format("{} changes nothing here: {}", typed, instead.substr(kNothing.size()));
  return fmt::format("{} changes nothing here ({})", typed, instead);
}

const ForeignFlag* foreign_flag(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto* known =
      std::find_if(std::begin(kForeign), std::end(kForeign), [&](const auto& f) { return has_word(f.names, wanted); });
  return known != std::end(kForeign) ? known : nullptr;
}

bool is_switch_word(std::string_view word) { return has_word("on off auto true false 0 1", word); }

const ForeignCommand* foreign_command(std::string_view first, std::string_view second) {
  const std::string both = std::string(first) + " " + std::string(second);
  const auto* known = std::find_if(std::begin(kCommands), std::end(kCommands),
                                   [&](const auto& c) { return c.words == first || c.words == both; });
  return known != std::end(kCommands) ? known : nullptr;
}

}  // namespace choral::apps
