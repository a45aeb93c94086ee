#include "layers/rotary_embedding.h"

namespace choral::layers {

RotaryEmbedding::RotaryEmbedding(Builder& builder, const Spec& spec)
    : CustomOp(kLayerName, builder.custom_ops, builder.session), op_(bind<platform::ops::RotaryEmbedding>()) {
  auto status = make_table(builder.session, spec);
  if (!status.ok()) builder.fail(std::move(status).while_("rotary embedding"));
}

Status RotaryEmbedding::make_table(platform::Session& session, const Spec& spec) {
  CHORAL_TRY(table_, kernels::RotaryTable::make(spec));
  on_device_ = table_.values().data();
  if (platform::host_reads(session)) return {};
  CHORAL_TRY(copy_, session.keep(table_.values()));
  on_device_ = copy_.as<float>().data();
  return {};
}

}  // namespace choral::layers
