// The architectures that are read from GGUF, and what their tensors are called.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/printable.h"
#include "io/gguf_names.h"

namespace choral::io {
namespace {

constexpr std::array<GgufRenaming, 3> kFourNorms{{{"post_attention_norm", "post_attention_layernorm"},
                                                  {"ffn_norm", "pre_feedforward_layernorm"},
                                                  {"post_ffw_norm", "post_feedforward_layernorm"}}};
constexpr std::array<GgufRenaming, 2> kNormsAfter{
    {{"post_attention_norm", "post_attention_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"}}};
constexpr std::array<GgufRenaming, 15> kGemma4{{{"post_attention_norm", "post_attention_layernorm"},
                                                {"ffn_norm", "pre_feedforward_layernorm"},
                                                {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                                {"post_ffw_norm", "post_feedforward_layernorm"},
                                                {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                                {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                                                {"layer_output_scale.weight", "layer_scalar"},
                                                {"inp_gate", "per_layer_input_gate"},
                                                {"proj", "per_layer_projection"},
                                                {"post_norm", "post_per_layer_input_norm"},
                                                {"ffn_gate_inp", "router.proj"},
                                                {"ffn_gate_inp.scale", "router.scale"},
                                                {"ffn_gate_up_exps", "experts.*.gate_up_proj"},
                                                {"ffn_down_exps", "experts.*.down_proj"},
                                                {"ffn_down_exps.scale", "router.per_expert_scale"}}};
constexpr std::array<GgufRenaming, 4> kExperts{{{"ffn_gate_inp", "mlp.gate"},
                                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                {"ffn_down_exps", "mlp.experts.*.down_proj"}}};
constexpr std::array<GgufRenaming, 8> kGatedSharedExpert{{{"ffn_gate_inp", "mlp.gate"},
                                                          {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                          {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                          {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                          {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                                          {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                                          {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                                          {"ffn_down_shexp", "mlp.shared_expert.down_proj"}}};
constexpr std::array<GgufRenaming, 4> kExpertsOfMixtral{{{"ffn_gate_inp", "block_sparse_moe.gate"},
                                                         {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                                         {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                                         {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}};
constexpr std::array<GgufRenaming, 10> kDeltaNets{{{"post_attention_norm", "post_attention_layernorm"},
                                                   {"attn_qkv", "linear_attn.in_proj_qkv"},
                                                   {"attn_gate", "linear_attn.in_proj_z"},
                                                   {"ssm_alpha", "linear_attn.in_proj_a"},
                                                   {"ssm_beta", "linear_attn.in_proj_b"},
                                                   {"ssm_a", "linear_attn.A"},
                                                   {"ssm_dt.bias", "linear_attn.dt_bias"},
                                                   {"ssm_conv1d", "linear_attn.conv1d"},
                                                   {"ssm_norm", "linear_attn.norm"},
                                                   {"ssm_out", "linear_attn.out_proj"}}};
constexpr std::array<GgufRenaming, 18> kDeltaNetsAndExperts{{kDeltaNets[0],
                                                             kDeltaNets[1],
                                                             kDeltaNets[2],
                                                             kDeltaNets[3],
                                                             kDeltaNets[4],
                                                             kDeltaNets[5],
                                                             kDeltaNets[6],
                                                             kDeltaNets[7],
                                                             kDeltaNets[8],
                                                             kDeltaNets[9],
                                                             kExperts[0],
                                                             kExperts[1],
                                                             kExperts[2],
                                                             kExperts[3],
                                                             {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                                             {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                                             {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                                             {"ffn_down_shexp", "mlp.shared_expert.down_proj"}}};
// Qwen3-Next's, whose converter leaves b and a as they are, and left q, k, v and z so at first.
constexpr std::array<GgufRenaming, 16> kDeltaNetsInTurns{{kDeltaNets[0],
                                                          {"ssm_in", "linear_attn.in_proj_qkvz"},
                                                          {"ssm_ba", "linear_attn.in_proj_ba"},
                                                          kDeltaNets[5],
                                                          kDeltaNets[6],
                                                          kDeltaNets[7],
                                                          kDeltaNets[8],
                                                          kDeltaNets[9],
                                                          kExperts[0],
                                                          kExperts[1],
                                                          kExperts[2],
                                                          kExperts[3],
                                                          kDeltaNetsAndExperts[14],
                                                          kDeltaNetsAndExperts[15],
                                                          kDeltaNetsAndExperts[16],
                                                          kDeltaNetsAndExperts[17]}};
constexpr std::array<GgufJoint, 1> kQkvzOfDeltaNets{
    {{.hf = "linear_attn.in_proj_qkvz", .first = "attn_qkv", .second = "attn_gate", .turn = GgufJoint::Turn::kDeltaHead}}};
constexpr std::array<GgufRenaming, 2> kMerged{{{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}}};
constexpr std::array<GgufRenaming, 14> kLatent{{{"attn_q_a", "self_attn.q_a_proj"},
                                                {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                                {"attn_q_b", "self_attn.q_b_proj"},
                                                {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                                {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                                {"attn_kv_b", "self_attn.kv_b_proj"},
                                                {"ffn_gate_inp", "mlp.gate"},
                                                {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                                {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                                {"ffn_down_shexp", "mlp.shared_experts.down_proj"}}};
constexpr std::array<GgufRenaming, 9> kSharedExperts{{{"post_attention_norm", "post_attention_layernorm"},
                                                      {"ffn_gate_inp", "mlp.gate"},
                                                      {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                                      {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                      {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                      {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                      {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                                      {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                                      {"ffn_down_shexp", "mlp.shared_experts.down_proj"}}};
constexpr std::array<GgufRenaming, 3> kOfGraniteMoe{{{"ffn_gate_inp", "block_sparse_moe.router"},
                                                     {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj"},
                                                     {"ffn_down_shexp", "shared_mlp.output_linear"}}};
constexpr std::array<GgufJoint, 2> kLinearsOfGraniteMoe{
    {{.hf = "block_sparse_moe.experts.*.gate_up_proj",
      .first = "ffn_gate_exps",
      .second = "ffn_up_exps",
      .turn = GgufJoint::Turn::kAll},
     {.hf = "shared_mlp.input_linear", .first = "ffn_gate_shexp", .second = "ffn_up_shexp", .turn = GgufJoint::Turn::kAll}}};
constexpr std::array<GgufRenaming, 10> kOfGraniteHybrid{{{"ssm_in", "mamba.in_proj"},
                                                         {"ssm_conv1d", "mamba.conv1d"},
                                                         {"ssm_dt.bias", "mamba.dt_bias"},
                                                         {"ssm_a", "mamba.A"},
                                                         {"ssm_d", "mamba.D"},
                                                         {"ssm_norm", "mamba.norm"},
                                                         {"ssm_out", "mamba.out_proj"},
                                                         kOfGraniteMoe[0],
                                                         kOfGraniteMoe[1],
                                                         kOfGraniteMoe[2]}};
constexpr std::array<GgufRenaming, 8> kOfGraniteHybridDense{{kOfGraniteHybrid[0],
                                                             kOfGraniteHybrid[1],
                                                             kOfGraniteHybrid[2],
                                                             kOfGraniteHybrid[3],
                                                             kOfGraniteHybrid[4],
                                                             kOfGraniteHybrid[5],
                                                             kOfGraniteHybrid[6],
                                                             {"ffn_down", "shared_mlp.output_linear"}}};
constexpr std::array<GgufJoint, 1> kInputLinear{
    {{.hf = "shared_mlp.input_linear", .first = "ffn_gate", .second = "ffn_up", .turn = GgufJoint::Turn::kAll}}};
constexpr std::array<GgufRenaming, 8> kOfLlama4{{{"ffn_gate_inp", "feed_forward.router"},
                                                 {"ffn_down_exps", "feed_forward.experts.*.down_proj"},
                                                 {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
                                                 {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
                                                 {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
                                                 {"ffn_gate", "feed_forward.gate_proj"},
                                                 {"ffn_up", "feed_forward.up_proj"},
                                                 {"ffn_down", "feed_forward.down_proj"}}};
constexpr std::array<GgufJoint, 1> kGateThenUpOfLlama4{{{.hf = "feed_forward.experts.*.gate_up_proj",
                                                         .first = "ffn_gate_exps",
                                                         .second = "ffn_up_exps",
                                                         .turn = GgufJoint::Turn::kAll}}};
constexpr std::array<GgufRenaming, 5> kExpertsOfMiniMax{{{"ffn_gate_inp", "block_sparse_moe.gate"},
                                                         {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
                                                         {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                                         {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                                         {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}};
constexpr std::array<GgufRenaming, 8> kExpertsOfErnie{{{"ffn_gate_inp", "mlp.gate"},
                                                       {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias"},
                                                       {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                       {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                       {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                       {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                                       {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                                       {"ffn_down_shexp", "mlp.shared_experts.down_proj"}}};
constexpr std::array<GgufJoint, 1> kKeysAndValues{
    {{.hf = "self_attn.kv_b_proj", .first = "attn_k_b", .second = "attn_v_b", .turn = GgufJoint::Turn::kLatentHead}}};
constexpr std::array<GgufRenaming, 4> kSinks{{{"attn_sinks.weight", "self_attn.sinks"},
                                              {"post_attention_norm", "post_attention_layernorm"},
                                              {"ffn_gate_inp", "mlp.router"},
                                              {"ffn_down_exps", "mlp.experts.*.down_proj"}}};
constexpr std::array<GgufJoint, 1> kGateAndUp{
    {{.hf = "mlp.experts.*.gate_up_proj", .first = "ffn_gate_exps", .second = "ffn_up_exps"}}};
constexpr std::array<GgufRenaming, 4> kMergedWithFourNorms{{{"post_attention_norm", "post_self_attn_layernorm"},
                                                            {"ffn_norm", "post_attention_layernorm"},
                                                            {"post_ffw_norm", "post_mlp_layernorm"},
                                                            {"ffn_up", "mlp.gate_up_proj"}}};
constexpr std::array<GgufRenaming, 1> kMergedGateUp{{{"ffn_up", "mlp.gate_up_proj"}}};
constexpr std::array<GgufRenaming, 1> kSecondNorm{{{"post_attention_norm", "post_attention_layernorm"}}};
constexpr std::array<GgufRenaming, 2> kTurnedHeadNorms{
    {{"attn_q_norm", "self_attn.query_layernorm"}, {"attn_k_norm", "self_attn.key_layernorm"}}};
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "chatglm", .hf_class = "GlmForCausalLM", .model_type = "glm", .in_layer = kMergedGateUp},
    {.name = "cohere2", .hf_class = "Cohere2ForCausalLM", .model_type = "cohere2", .layer_norm = true},
    {.name = "command-r", .hf_class = "CohereForCausalLM", .model_type = "cohere", .layer_norm = true},
    {.name = "deepseek2",
     .hf_class = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .experts = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "deepseek2",
     .hf_class = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "ernie4_5", .hf_class = "Ernie4_5ForCausalLM", .model_type = "ernie4_5"},
    {.name = "exaone4", .hf_class = "Exaone4ForCausalLM", .model_type = "exaone4", .in_layer = kNormsAfter},
    {.name = "deepseek2",  // the same equations: read as V3's
     .hf_class = "Glm4MoeLiteForCausalLM",
     .model_type = "glm4_moe_lite",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "ernie4_5-moe",
     .hf_class = "Ernie4_5_MoeForCausalLM",
     .model_type = "ernie4_5_moe",
     .experts = true,
     .in_layer = kExpertsOfErnie},
    {.name = "gemma2", .hf_class = "Gemma2ForCausalLM", .model_type = "gemma2", .norms_hold_one = true, .in_layer = kFourNorms},
    {.name = "gemma3",
     .hf_class = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .norms_hold_one = true,
     .in_layer = kFourNorms},
    {.name = "gemma4", .hf_class = "Gemma4ForCausalLM", .model_type = "gemma4_text", .in_layer = kGemma4},
    {.name = "gemma4", .hf_class = "Gemma4ForCausalLM", .model_type = "gemma4_text", .experts = true, .in_layer = kGemma4},
    {.name = "gemma-embedding",
     .hf_class = "Gemma3TextModel",
     .model_type = "gemma3_text",
     .norms_hold_one = true,
     .in_layer = kFourNorms},
    {.name = "glm4", .hf_class = "Glm4ForCausalLM", .model_type = "glm4", .in_layer = kMergedWithFourNorms},
    {.name = "glm4moe",
     .hf_class = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kSharedExperts},
    {.name = "glm4moe",  // GLM's equations: read as that
     .hf_class = "SolarOpenForCausalLM",
     .model_type = "solar_open",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kSharedExperts},
    {.name = "gpt-oss",
     .hf_class = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .experts = true,
     .in_layer = kSinks,
     .joints = kGateAndUp},
    {.name = "granite", .hf_class = "GraniteForCausalLM", .model_type = "granite", .interleaved_qk = true},
    {.name = "granitehybrid",
     .hf_class = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .interleaved_qk = true,
     .mamba2 = true,
     .in_layer = kOfGraniteHybridDense,
     .joints = kInputLinear},
    {.name = "granitehybrid",
     .hf_class = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .interleaved_qk = true,
     .experts = true,
     .mamba2 = true,
     .in_layer = kOfGraniteHybrid,
     .joints = kLinearsOfGraniteMoe},
    {.name = "hunyuan-dense",
     .hf_class = "HunYuanDenseV1ForCausalLM",
     .model_type = "hunyuan_v1_dense",
     .in_layer = kTurnedHeadNorms},
    {.name = "granitemoe",
     .hf_class = "GraniteMoeSharedForCausalLM",
     .model_type = "granitemoeshared",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kOfGraniteMoe,
     .joints = kLinearsOfGraniteMoe},
    {.name = "granitemoe",  // the other without a shared expert: read as that
     .hf_class = "GraniteMoeForCausalLM",
     .model_type = "granitemoe",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kOfGraniteMoe,
     .joints = kLinearsOfGraniteMoe},
    {.name = "llama", .hf_class = "LlamaForCausalLM", .model_type = "llama", .interleaved_qk = true},
    {.name = "llama",
     .hf_class = "MixtralForCausalLM",
     .model_type = "mixtral",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kExpertsOfMixtral},
    {.name = "llama4",
     .hf_class = "Llama4ForCausalLM",
     .model_type = "llama4_text",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kOfLlama4,
     .joints = kGateThenUpOfLlama4},
    {.name = "minimax-m2",
     .hf_class = "MiniMaxM2ForCausalLM",
     .model_type = "minimax_m2",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kExpertsOfMiniMax},
    {.name = "mistral", .hf_class = "MistralForCausalLM", .model_type = "mistral", .interleaved_qk = true},
    {.name = "mistral3", .hf_class = "Ministral3ForCausalLM", .model_type = "ministral3", .interleaved_qk = true},
    {.name = "olmo2", .hf_class = "Olmo2ForCausalLM", .model_type = "olmo2", .windows = false, .in_layer = kNormsAfter},
    {.name = "olmo2", .hf_class = "Olmo3ForCausalLM", .model_type = "olmo3", .windows = true, .in_layer = kNormsAfter},
    {.name = "olmoe", .hf_class = "OlmoeForCausalLM", .model_type = "olmoe", .experts = true, .in_layer = kExperts},
    {.name = "phi3", .hf_class = "Phi3ForCausalLM", .model_type = "phi3", .in_layer = kMerged},
    {.name = "qwen2", .hf_class = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen2moe",
     .hf_class = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .experts = true,
     .in_layer = kGatedSharedExpert},
    {.name = "qwen3", .hf_class = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "qwen35",
     .hf_class = "Qwen3_5ForCausalLM",
     .model_type = "qwen3_5_text",
     .norms_hold_one = true,
     .delta_nets = true,
     .tiled_value_heads = true,
     .in_layer = kDeltaNets},
    {.name = "qwen35moe",
     .hf_class = "Qwen3_5MoeForCausalLM",
     .model_type = "qwen3_5_moe_text",
     .experts = true,
     .norms_hold_one = true,
     .delta_nets = true,
     .tiled_value_heads = true,
     .in_layer = kDeltaNetsAndExperts},
    {.name = "qwen3next",
     .hf_class = "Qwen3NextForCausalLM",
     .model_type = "qwen3_next",
     .experts = true,
     .norms_hold_one = true,
     .delta_nets = true,
     .in_layer = kDeltaNetsInTurns,
     .joints = kQkvzOfDeltaNets},
    {.name = "qwen3moe", .hf_class = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .experts = true, .in_layer = kExperts},
    {.name = "qwen2vl", .hf_class = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen3vl", .hf_class = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "seed_oss", .hf_class = "SeedOssForCausalLM", .model_type = "seed_oss", .in_layer = kSecondNorm},
    {.name = "smollm3", .hf_class = "SmolLM3ForCausalLM", .model_type = "smollm3", .interleaved_qk = true},
};

constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // "….expert_gating_func"

}  // namespace

Result<GgufArchitecture> gguf_architecture(const GgufFile& file) {
  const ConfigMap& metadata = file.metadata();
  CHORAL_TRY(const std::string name, metadata.get_string("general.architecture"));
  CHORAL_TRY(const int64_t experts, metadata.get_int_or(name + ".expert_count", 0));
  const std::string gating_key = name + ".expert_gating_func";
  CHORAL_TRY(int64_t gating, metadata.get_int_or(gating_key, kSoftmax, {kSoftmax, kSigmoid}));
  CHORAL_TRY(const int64_t window, metadata.get_int_or(name + ".attention.sliding_window", 0));
  std::vector<std::string_view> known;
  const GgufArchitecture* found = nullptr;  // an adapter's file says no more than the name
  const auto fits = [&](const GgufArchitecture& a) {
    return a.experts == (experts > 0) && a.sigmoid_gating == (gating == kSigmoid) &&
           a.windows.value_or(window > 0) == (window > 0);
  };
  for (const auto& architecture : kArchitectures) {
    if (known.empty() || known.back() != architecture.name) known.push_back(architecture.name);
    if (architecture.name != name) continue;
    if (found == nullptr && !metadata.contains(gating_key)) gating = architecture.sigmoid_gating ? kSigmoid : kSoftmax;
    if (found == nullptr || (!fits(*found) && fits(architecture))) found = &architecture;
  }
  if (found == nullptr) {
    return unsupported("{}: the GGUF architecture '{}' is not supported ({} are); use the safetensors files", metadata.source(),
                       printable(name), fmt::join(known, ", "));
  }
  if (metadata.contains(name + ".expert_count") && found->experts != (experts > 0)) {
    return unsupported("{}.expert_count is {}; of {} only files with{} are read; use the safetensors files",
                       metadata.path_of(name), experts, name, found->experts ? " experts" : "out experts");
  }
  if (found->sigmoid_gating != (gating == kSigmoid)) {
    return unsupported("{} is {}; experts of {} are scored by a {} ({})", metadata.path_of(gating_key), gating, name,
                       found->sigmoid_gating ? "sigmoid" : "softmax", found->sigmoid_gating ? kSigmoid : kSoftmax);
  }
  return *found;
}

Result<std::vector<int64_t>> gguf_kv_heads(const ConfigMap& metadata, std::string_view architecture, int64_t layers) {
  const std::string key = fmt::format("{}.attention.head_count_kv", architecture);
  CHORAL_TRY(auto heads, metadata.get_int_or_ints(key, {0, 1 << 24}));
  if (heads.size() == 1) heads.resize(static_cast<size_t>(layers), heads.front());
  if (std::ssize(heads) != layers) {
    return corrupt("{} has {} numbers for {} layers", metadata.path_of(key), heads.size(), layers);
  }
  const int64_t most = heads.empty() ? 0 : *std::max_element(heads.begin(), heads.end());
  for (const int64_t count : heads) {
    if (count == 0 || count == most) continue;
    return unsupported("{} has layers with {} and with {} key heads; all that have some are alike in models of this family",
                       metadata.path_of(key), count, most);
  }
  if (most == 0) return corrupt("{}: no layer has a key head", metadata.path_of(key));
  return heads;
}

Result<int64_t> gguf_key_heads(const ConfigMap& metadata, const GgufArchitecture& architecture, int64_t absent) {
  if (!architecture.mamba2) {
    return metadata.get_int_or(fmt::format("{}.attention.head_count_kv", architecture.name), absent, kPositive);
  }
  CHORAL_TRY(const int64_t layers, metadata.get_int(fmt::format("{}.block_count", architecture.name), {1, 4096}));
  CHORAL_TRY(const auto heads, gguf_kv_heads(metadata, architecture.name, layers));
  return *std::max_element(heads.begin(), heads.end());
}

std::optional<GgufArchitecture> gguf_architecture_of(std::string_view hf_class) {
  for (const auto& architecture : kArchitectures) {
    if (architecture.hf_class == hf_class) return architecture;
  }
  return std::nullopt;
}

bool is_gguf_architecture_of(std::string_view name, std::string_view hf_class) {
  const auto of_file =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto& a) { return a.name == name; });
  const auto of_model =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto& a) { return a.hf_class == hf_class; });
  if (of_file == std::end(kArchitectures) || of_model == std::end(kArchitectures)) return false;
  const auto is_llama = [](const GgufArchitecture& a) { return a.name == "llama" || a.name.starts_with("mistral"); };
  return of_file->name == of_model->name || (is_llama(*of_file) && is_llama(*of_model));
}

}  // namespace choral::io
