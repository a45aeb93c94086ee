// The operators of one device. Layers call them through this table and know no kernel, so that a device moves in without
// touching layers or models. Each entry has a name, a semantic version, a rule for shapes, and the provider that serves it with
// the reason why it is that one (`choral doctor --ops`). Entries change only between steps, by their owner.
//
// The table has a member for each operator of the list (operators.h), under its name: ctx.ops.rms_norm(ctx, x, w, eps, y).
// Operators of the CPU alone have no provider on other devices (`run` is null); all others can always be called.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/ops/operators.h"

namespace choral::platform {

struct OpFacts {
  std::string_view name;
  int version = 1;
  bool fused = false;
  std::string provider;
  std::string reason;
};

template <class List>
struct OpEntries;
template <class... D>
struct OpEntries<OpList<D...>> : D::template Entry<OpOf<D>>... {
  static_assert((is_whole<D>() && ...));
  OpEntries()
      : D::template Entry<OpOf<D>>{{.name = D::kName, .version = D::kVersion, .fused = D::kFused, .meta = D::kShape}}... {}
};

struct OpTable : OpEntries<AllOps> {
  // The entry of the operator that D describes.
  template <class D>
  const OpOf<D>& get() const {
    const auto& [entry] = static_cast<const typename D::template Entry<OpOf<D>>&>(*this);
    return entry;
  }
  template <class D>
  OpOf<D>& get() {
    auto& [entry] = static_cast<typename D::template Entry<OpOf<D>>&>(*this);
    return entry;
  }

  // Calls visit(op) for every entry, in the order of the list.
  template <class Visit>
  void for_each(Visit visit) const {
    AllOps::for_each([&]<class D>(D) { visit(get<D>()); });
  }
  template <class Visit>
  void for_each(Visit visit) {
    AllOps::for_each([&]<class D>(D) { visit(get<D>()); });
  }
  std::vector<OpFacts> facts() const;
};

}  // namespace choral::platform
