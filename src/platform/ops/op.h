// What an operator is made of. Its descriptor (operators.h) is a struct that says everything once:
//
//   CHORAL_OP(rms_norm_heads)    its public name, and its member of the op table
//   Call                         how it is called: void(const Context&, …)
//   forward_cpu                  the host's kernels
//   forward_native               what it means: the plain loops, or of a fused one the calls of others that it stands for
//   oot_arguments, conform       the arguments of a plug-in's form (out of the tree), and the tests that such a form has to pass
//   kHostsOwn = "reason"         instead of these two, if the plug-in interface does not have it
// and, where they are not as in OpTraits, kVersion, kShape, kFused, kCpuOnly, kOnCache, kOnStacks.
//
// From the list of all descriptors come the table, its walk, the staged forms, the composed ones, the names and numbers that
// plug-ins are known by, and their tests. A piece that is missing does not compile; one that is declared and not defined does not
// link.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/clock.h"
#include "platform/context.h"
#include "platform/ops/op_profile.h"
#include "platform/ops/op_shapes.h"

namespace choral::platform {

#define CHORAL_OP(id)                            \
  static constexpr std::string_view kName = #id; \
  template <class Op>                            \
  struct Entry {                                 \
    Op id;                                       \
  }

// What most operators are; a descriptor derives from it and says what it is instead.
struct OpTraits {
  static constexpr int kVersion = 1;            // of its meaning: a change of meaning raises it
  static constexpr ShapeRule kShape = nullptr;  // from the inputs' shapes to the output's, where graphs are held to it
  static constexpr bool kFused = false;         // a shorter way to say what others say together
  static constexpr bool kCpuOnly = false;       // other devices do not have it even on copies; it needs no forward_native
  static constexpr bool kOnCache = false;       // works on the KV cache, whose order is its owner's business
  static constexpr bool kOnStacks = false;  // works on adapters' stacks, which a device has when it serves all that are not fused
};

template <class Signature>
struct Op;

// One entry of the table: who serves the operator, and how it is called.
template <class... Args>
struct Op<void(const Context&, Args...)> {
  using Run = void (*)(const Context&, Args...);

  std::string_view name;
  int version = 1;
  bool fused = false;
  ShapeRule meta = nullptr;
  std::string provider = {};  // "cpu", "native", "composed", a plug-in's name; "cpu, staged" for the host's on copies
  std::string reason = {};    // why this one, when it is not what one would expect
  Run run = nullptr;

  void serve(Run function, std::string_view by, std::string_view why = {}) {
    run = function;
    provider = by;
    reason = why;
  }

  void operator()(const Context& ctx, Args... args) const {
    if (ctx.profile == nullptr) [[likely]]
      return run(ctx, args...);
    const double begin = now_s();
    run(ctx, args...);
    ctx.profile->add(name, now_s() - begin);
  }
};

template <class D>
concept HasOotForm = requires {
  &D::oot_arguments;
};

namespace op_detail {

template <class Struct, class Call>
struct OotArguments;
template <class Struct, class... Args>
struct OotArguments<Struct, void(const Context&, Args...)> {
  using Function = Struct(Args...);
};

}  // namespace op_detail

// The function that makes a plug-in's arguments of a call's.
template <class Struct, class Call>
using OotArguments = typename op_detail::OotArguments<Struct, Call>::Function;

// Whether a descriptor says everything; what it lacks is the compiler's error.
template <class D>
constexpr bool is_whole() {
  static_assert(
      requires { D::kName; }, "this operator has no name: CHORAL_OP(name)");
  static_assert(
      requires { typename D::Call; }, "this operator has no Call: how is it called?");
  static_assert(
      requires { &D::forward_cpu; }, "this operator has no forward_cpu: nobody could run it");
  static_assert(
      D::kCpuOnly || requires { &D::forward_native; }, "this operator has no forward_native: nothing says what it means");
  static_assert(
      HasOotForm<D> != requires { D::kHostsOwn; },
      "this operator has no oot_arguments for plug-ins: give them, or kHostsOwn with the reason");
  static_assert(
      HasOotForm<D> == requires { &D::conform; },
      "this operator has no conform: a plug-in's form of it would be believed unseen");
  static_assert(
      HasOotForm<D> || requires { std::string_view(D::kHostsOwn); }, "kHostsOwn is a text for people");
  static_assert(!D::kCpuOnly || !HasOotForm<D>, "an operator of the CPU alone has no form for plug-ins");
  return true;
}

// The entry of an operator.
template <class D>
using OpOf = Op<typename D::Call>;

// What is known of an operator without its type.
struct OpDescription {
  std::string_view name;
  int version = 1;
  bool fused = false, on_cache = false;
  bool has_oot_form = false;
};

// An operator's number: its place in the list. Of one build, not of the plug-in interface, which knows names.
enum class OpId : uint8_t {};

template <class... D>
struct OpList {
  static constexpr size_t kSize = sizeof...(D);

  static constexpr const OpDescription& describe(OpId id) { return kDescriptions[static_cast<size_t>(id)]; }

  // Calls visit(D()) for every descriptor, in the order of the list.
  template <class Visit>
  static constexpr void for_each(Visit visit) {
    (visit(D()), ...);
  }
  // Calls visit(D()) for the one with this number.
  template <class Visit>
  static constexpr void at(OpId id, Visit visit) {
    size_t i = 0;
    (void)((i++ == static_cast<size_t>(id) && (visit(D()), true)) || ...);
  }
  template <class Wanted>
  static constexpr OpId id() {
    static_assert((std::is_same_v<Wanted, D> || ...), "this operator is not in the list of all (operators.h)");
    size_t i = 0;
    (void)((std::is_same_v<Wanted, D> || (++i, false)) || ...);
    return static_cast<OpId>(i);
  }
  static constexpr std::optional<OpId> find(std::string_view name) {
    size_t i = 0;
    if (((D::kName == name || (++i, false)) || ...)) return static_cast<OpId>(i);
    return std::nullopt;
  }

 private:
  static constexpr std::array<OpDescription, kSize> kDescriptions{
      OpDescription{D::kName, D::kVersion, D::kFused, D::kOnCache, HasOotForm<D>}...};
};

}  // namespace choral::platform
