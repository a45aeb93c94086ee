// Quantisation schemes that a platform brings (Platform::scheme_overrides): in the place of one of the engine's, by its name and
// the kind of layer ("W8A8_DYNAMIC", "linear"), or under a name of its own, which --quantization or check_and_update_config may
// wish for. What a scheme is, is known above (quant/scheme.h), so factories are kept by their type. Filled before a model is
// built and read-only then.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace choral::platform {

class SchemeOverrides {
 public:
  // Makes what stands in for `usual`, the scheme that layers would have without.
  template <class Scheme>
  using Factory = std::function<std::shared_ptr<const Scheme>(std::shared_ptr<const Scheme> usual)>;
  using Key = std::pair<std::string, std::string>;  // scheme ("FLOAT" of weights as stored), kind of layer

  template <class Scheme>
  void add(std::string_view scheme, std::string_view kind, Factory<Scheme> factory) {
    factories_[{std::string(scheme), std::string(kind)}] = std::move(factory);
  }

  // Null when there is none.
  template <class Scheme>
  const Factory<Scheme>* find(std::string_view scheme, std::string_view kind) const {
    const auto found = factories_.find({std::string(scheme), std::string(kind)});
    return found == factories_.end() ? nullptr : std::any_cast<Factory<Scheme>>(&found->second);
  }

  bool empty() const { return factories_.empty(); }
  std::vector<Key> keys() const {
    std::vector<Key> keys;
    for (const auto& entry : factories_) keys.push_back(entry.first);
    return keys;
  }

 private:
  std::map<Key, std::any> factories_;
};

}  // namespace choral::platform
