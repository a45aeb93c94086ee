// Which experts of a mixture a token goes to and with what weight, from the router's logits [tokens, experts], float32:
//   score = softmax(logits) or sigmoid(logits);   selection = score + bias (DeepSeek-V3's e_score_correction_bias); without
//   a bias the score, or of a sigmoid in one group the logit, which ranks alike and goes on where a sigmoid is 1
//   experts in `groups` equal neighbouring groups: a group's score is its largest selection, or the sum of its two largest; the
//   `top_groups` best groups stay, the others are out whatever their values (not set to 0: a selection may be negative)
//   ids = the top_k experts of what stays, by descending selection;   weights = their scores, without the bias,
//   divided by their sum + 1e-20 if `renormalise`, then times `routed_scaling` and the expert's own scale.
// A sparse mixer (PhiMoE's) has neither bias nor groups: ids are the largest logits, and weights[s] = 1 / Σ e^(logit - logit of
//   ids[s]) over those that no earlier place has, and that are near: (logit of ids[s] - logit) / max(|logit|, logit of ids[s]) is
//   not above 2·jitter.
// Ties, between groups as between experts, go to the lower index. A row in which any selection is NaN (a NaN logit, +inf or
// nothing but -inf under softmax or a mixer, a NaN bias) gets ids 0 … top_k - 1 and NaN weights, so that the token is NaN, its
// expert ids stay valid and no other row is touched. An element's score does not depend on its index. Pure functions; rows are
// divided over ctx.pool, a row of scratch per thread comes from ctx.scratch. Oracle: ref/moe_gating.h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

enum class GateScoring { kSoftmax, kSigmoid, kSparseMixer };
enum class GroupScore { kMax, kTopTwoSum };

struct MoeGating {
  GateScoring scoring = GateScoring::kSoftmax;
  std::span<const float> selection_bias = {};  // [experts] or empty
  int64_t groups = 1;                          // divides the number of experts
  int64_t top_groups = 1;                      // of them
  GroupScore group_score = GroupScore::kMax;   // kTopTwoSum needs groups of two experts or more
  int64_t top_k = 1;                           // at most the experts of top_groups groups
  bool renormalise = false;
  float routed_scaling = 1.0f;
  float jitter = 0.0f;                       // of a sparse mixer
  std::span<const float> expert_scale = {};  // [experts] or empty
};

// ids, weights [tokens, top_k].
void moe_gating_top_k(const Context& ctx, MatrixView<const float> logits, const MoeGating& gating, MatrixView<int32_t> ids,
                      MatrixView<float> weights);

}  // namespace choral::kernels
