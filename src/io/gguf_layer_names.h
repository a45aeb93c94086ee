// What the tensors of a layer are called in GGUF and by Hugging Face, where a family has other names than llama, and which of
// them GGUF holds as two. Internal to io.
#pragma once

#include <algorithm>
#include <array>

#include "io/gguf_names.h"

namespace choral::io {

inline constexpr std::array<GgufRenaming, 3> kFourNorms{{{"post_attention_norm", "post_attention_layernorm"},
                                                         {"ffn_norm", "pre_feedforward_layernorm"},
                                                         {"post_ffw_norm", "post_feedforward_layernorm"}}};
inline constexpr std::array<GgufRenaming, 2> kNormsAfter{
    {{"post_attention_norm", "post_attention_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"}}};
inline constexpr std::array<GgufRenaming, 15> kGemma4{{{"post_attention_norm", "post_attention_layernorm"},
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
inline constexpr std::array<GgufRenaming, 4> kExperts{{{"ffn_gate_inp", "mlp.gate"},
                                                       {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                       {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                       {"ffn_down_exps", "mlp.experts.*.down_proj"}}};
inline constexpr std::array<GgufRenaming, 8> kGatedSharedExpert{{{"ffn_gate_inp", "mlp.gate"},
                                                                 {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                                 {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                                 {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                                 {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                                                 {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                                                 {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                                                 {"ffn_down_shexp", "mlp.shared_expert.down_proj"}}};
inline constexpr std::array<GgufRenaming, 4> kExpertsOfMixtral{{{"ffn_gate_inp", "block_sparse_moe.gate"},
                                                                {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                                                {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                                                {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}};
inline constexpr std::array<GgufRenaming, 10> kDeltaNets{{{"post_attention_norm", "post_attention_layernorm"},
                                                          {"attn_qkv", "linear_attn.in_proj_qkv"},
                                                          {"attn_gate", "linear_attn.in_proj_z"},
                                                          {"ssm_alpha", "linear_attn.in_proj_a"},
                                                          {"ssm_beta", "linear_attn.in_proj_b"},
                                                          {"ssm_a", "linear_attn.A"},
                                                          {"ssm_dt.bias", "linear_attn.dt_bias"},
                                                          {"ssm_conv1d", "linear_attn.conv1d"},
                                                          {"ssm_norm", "linear_attn.norm"},
                                                          {"ssm_out", "linear_attn.out_proj"}}};
inline constexpr std::array<GgufRenaming, 18> kDeltaNetsAndExperts{{kDeltaNets[0],
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
inline constexpr std::array<GgufRenaming, 16> kDeltaNetsInTurns{{kDeltaNets[0],
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
inline constexpr std::array<GgufJoint, 1> kQkvzOfDeltaNets{
    {{.hf = "linear_attn.in_proj_qkvz", .first = "attn_qkv", .second = "attn_gate", .turn = GgufJoint::Turn::kDeltaHead}}};
inline constexpr std::array<GgufRenaming, 2> kMerged{{{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}}};
inline constexpr std::array<GgufRenaming, 14> kLatent{{{"attn_q_a", "self_attn.q_a_proj"},
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
inline constexpr std::array<GgufRenaming, 18> kLatentWithIndexer = [] {
  std::array<GgufRenaming, kLatent.size() + 4> names{{{"indexer.attn_q_b", "self_attn.indexer.wq_b"},
                                                      {"indexer.attn_k", "self_attn.indexer.wk"},
                                                      {"indexer.k_norm", "self_attn.indexer.k_norm"},
                                                      {"indexer.proj", "self_attn.indexer.weights_proj"}}};
  std::copy(kLatent.begin(), kLatent.end(), names.begin() + 4);
  return names;
}();
inline constexpr std::array<GgufRenaming, 9> kSharedExperts{{{"post_attention_norm", "post_attention_layernorm"},
                                                             {"ffn_gate_inp", "mlp.gate"},
                                                             {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                                             {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                             {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                             {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                             {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                                             {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                                             {"ffn_down_shexp", "mlp.shared_experts.down_proj"}}};
inline constexpr std::array<GgufRenaming, 3> kOfGraniteMoe{{{"ffn_gate_inp", "block_sparse_moe.router"},
                                                            {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj"},
                                                            {"ffn_down_shexp", "shared_mlp.output_linear"}}};
inline constexpr std::array<GgufJoint, 2> kLinearsOfGraniteMoe{
    {{.hf = "block_sparse_moe.experts.*.gate_up_proj",
      .first = "ffn_gate_exps",
      .second = "ffn_up_exps",
      .turn = GgufJoint::Turn::kAll},
     {.hf = "shared_mlp.input_linear", .first = "ffn_gate_shexp", .second = "ffn_up_shexp", .turn = GgufJoint::Turn::kAll}}};
inline constexpr std::array<GgufRenaming, 10> kOfGraniteHybrid{{{"ssm_in", "mamba.in_proj"},
                                                                {"ssm_conv1d", "mamba.conv1d"},
                                                                {"ssm_dt.bias", "mamba.dt_bias"},
                                                                {"ssm_a", "mamba.A"},
                                                                {"ssm_d", "mamba.D"},
                                                                {"ssm_norm", "mamba.norm"},
                                                                {"ssm_out", "mamba.out_proj"},
                                                                kOfGraniteMoe[0],
                                                                kOfGraniteMoe[1],
                                                                kOfGraniteMoe[2]}};
inline constexpr std::array<GgufRenaming, 8> kOfGraniteHybridDense{{kOfGraniteHybrid[0],
                                                                    kOfGraniteHybrid[1],
                                                                    kOfGraniteHybrid[2],
                                                                    kOfGraniteHybrid[3],
                                                                    kOfGraniteHybrid[4],
                                                                    kOfGraniteHybrid[5],
                                                                    kOfGraniteHybrid[6],
                                                                    {"ffn_down", "shared_mlp.output_linear"}}};
inline constexpr std::array<GgufJoint, 1> kInputLinear{
    {{.hf = "shared_mlp.input_linear", .first = "ffn_gate", .second = "ffn_up", .turn = GgufJoint::Turn::kAll}}};
inline constexpr std::array<GgufRenaming, 8> kOfLlama4{{{"ffn_gate_inp", "feed_forward.router"},
                                                        {"ffn_down_exps", "feed_forward.experts.*.down_proj"},
                                                        {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
                                                        {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
                                                        {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
                                                        {"ffn_gate", "feed_forward.gate_proj"},
                                                        {"ffn_up", "feed_forward.up_proj"},
                                                        {"ffn_down", "feed_forward.down_proj"}}};
inline constexpr std::array<GgufJoint, 1> kGateThenUpOfLlama4{{{.hf = "feed_forward.experts.*.gate_up_proj",
                                                                .first = "ffn_gate_exps",
                                                                .second = "ffn_up_exps",
                                                                .turn = GgufJoint::Turn::kAll}}};
inline constexpr std::array<GgufRenaming, 5> kExpertsOfMiniMax{{{"ffn_gate_inp", "block_sparse_moe.gate"},
                                                                {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
                                                                {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                                                {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                                                {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}};
inline constexpr std::array<GgufRenaming, 8> kExpertsOfErnie{{{"ffn_gate_inp", "mlp.gate"},
                                                              {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias"},
                                                              {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                              {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                              {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                              {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                                              {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                                              {"ffn_down_shexp", "mlp.shared_experts.down_proj"}}};
inline constexpr std::array<GgufJoint, 1> kKeysAndValues{
    {{.hf = "self_attn.kv_b_proj", .first = "attn_k_b", .second = "attn_v_b", .turn = GgufJoint::Turn::kLatentHead}}};
inline constexpr std::array<GgufRenaming, 4> kSinks{{{"attn_sinks.weight", "self_attn.sinks"},
                                                     {"post_attention_norm", "post_attention_layernorm"},
                                                     {"ffn_gate_inp", "mlp.router"},
                                                     {"ffn_down_exps", "mlp.experts.*.down_proj"}}};
inline constexpr std::array<GgufJoint, 1> kGateAndUp{
    {{.hf = "mlp.experts.*.gate_up_proj", .first = "ffn_gate_exps", .second = "ffn_up_exps"}}};
inline constexpr std::array<GgufRenaming, 4> kMergedWithFourNorms{{{"post_attention_norm", "post_self_attn_layernorm"},
                                                                   {"ffn_norm", "post_attention_layernorm"},
                                                                   {"post_ffw_norm", "post_mlp_layernorm"},
                                                                   {"ffn_up", "mlp.gate_up_proj"}}};
inline constexpr std::array<GgufRenaming, 1> kMergedGateUp{{{"ffn_up", "mlp.gate_up_proj"}}};
inline constexpr std::array<GgufRenaming, 1> kSecondNorm{{{"post_attention_norm", "post_attention_layernorm"}}};
inline constexpr std::array<GgufRenaming, 2> kTurnedHeadNorms{
    {{"attn_q_norm", "self_attn.query_layernorm"}, {"attn_k_norm", "self_attn.key_layernorm"}}};
inline constexpr std::array<GgufRenaming, 9> kExpertsOfHunyuan{{kTurnedHeadNorms[0],
                                                                kTurnedHeadNorms[1],
                                                                {"ffn_gate_inp", "mlp.gate.wg"},
                                                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                                {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                                                {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
                                                                {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
                                                                {"ffn_down_shexp", "mlp.shared_mlp.down_proj"}}};

}  // namespace choral::io
