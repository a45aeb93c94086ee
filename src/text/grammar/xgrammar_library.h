// The library xgrammar (PyPI: xgrammar, apache-tvm-ffi), opened at run time from an installed wheel (xgrammar_finder.h) without
// Python: checked for the one version whose interface is known here, and called through libtvm_ffi's C functions.
// It stays loaded for the life of the process. Thread-safety: calls may come from many threads; xgrammar's own rules about its
// objects are xgrammar_grammar.cc's to keep.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "text/grammar/tvm_ffi_abi.h"

namespace choral::text {

// A value that owns the object it may hold. The library must outlive it.
class FfiValue {
 public:
  FfiValue() = default;
  FfiValue(tvm_ffi::Any any, const tvm_ffi::Functions* functions) : any_(any), functions_(functions) {}
  FfiValue(FfiValue&& other) noexcept : any_(std::exchange(other.any_, {})), functions_(other.functions_) {}
  FfiValue& operator=(FfiValue&& other) noexcept {
    std::swap(any_, other.any_);
    std::swap(functions_, other.functions_);
    return *this;
  }
  ~FfiValue() {
    if (any_.type_index >= tvm_ffi::kFirstObject) static_cast<void>(functions_->ObjectDecRef(any_.object));
  }

  tvm_ffi::Any view() const { return any_; }  // for arguments, while this lives
  bool is_true() const { return any_.type_index == tvm_ffi::kBool && any_.integer != 0; }
  std::string_view text() const {
    if (any_.type_index == tvm_ffi::kSmallText) return {any_.bytes, std::min<size_t>(any_.small_size, sizeof(any_.bytes))};
    if (any_.type_index != tvm_ffi::kText) return {};
    const auto& bytes = static_cast<const tvm_ffi::Text*>(any_.pointer)->bytes;
    return {bytes.data, bytes.size};
  }
  int64_t integer() const { return any_.type_index == tvm_ffi::kInt ? any_.integer : 0; }

 private:
  tvm_ffi::Any any_;
  const tvm_ffi::Functions* functions_ = nullptr;
};

inline tvm_ffi::Any ffi_none() { return {}; }
inline tvm_ffi::Any ffi_integer(int64_t value) { return {tvm_ffi::kInt, 0, {value}}; }
inline tvm_ffi::Any ffi_boolean(bool value) { return {tvm_ffi::kBool, 0, {value}}; }
inline tvm_ffi::Any ffi_tensor(tvm_ffi::Tensor& tensor) {
  tvm_ffi::Any any{tvm_ffi::kTensorPointer, 0, {0}};
  any.pointer = &tensor;
  return any;
}

class XgrammarLibrary {
 public:
  // `folder` as XgrammarFinder gives it. unsupported, with what to install, when what is there is not what it says it is.
  static Result<std::shared_ptr<const XgrammarLibrary>> open(const std::filesystem::path& folder);

  using Function = void*;
  // Those of xgrammar's classes that are used; found once.
  struct Methods {
    Function make_tokenizer, tokenizer_size;
    Function make_compiler, compile_json_schema, compile_regex, compile_grammar, compile_structural_tag;
    Function grammar_bytes;
    Function make_matcher, fill_mask, accept_token, is_completed, rollback, forced_text;
  };
  const Methods& methods() const { return methods_; }

  // An error of the library is invalid_argument with its words: what we give it was looked at, so it speaks of the request.
  Result<FfiValue> call(Function function, std::span<tvm_ffi::Any> arguments) const;
  Result<FfiValue> text(std::string_view utf8) const;
  Result<FfiValue> bytes(std::string_view bytes) const;
  Result<FfiValue> array(std::span<tvm_ffi::Any> elements) const;

 private:
  XgrammarLibrary() = default;
  Status load(const std::filesystem::path& folder);
  Status find_methods();
  Status last_error() const;

  tvm_ffi::Functions functions_{};
  Methods methods_{};
  Function make_array_ = nullptr;
};

}  // namespace choral::text
