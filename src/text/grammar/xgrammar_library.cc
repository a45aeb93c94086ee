#include "text/grammar/xgrammar_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/opened_library.h"
#include "base/printable.h"
#include "text/grammar/xgrammar_finder.h"

namespace choral::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInstall = XgrammarFinder::kInstall;
constexpr int64_t kMaxRecursion = 2000;  // of the library's parsers, on a thread's usual stack

Result<void*> open_file(const fs::path& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return unsupported("{} can't be loaded: {}; {}", printable(path.string()), printable(dlerror()), kInstall);
  }
  return library;
}

tvm_ffi::Bytes ffi_bytes(std::string_view text) { return {text.data(), text.size()}; }

// "[12:34:56] /project/cpp/x.cc:7: words" -> "words": clocks and source files say nothing to a client.
std::string_view words_of(std::string_view message) {
  if (message.starts_with('[')) {
    if (const size_t end = message.find("] "); end != std::string_view::npos) message.remove_prefix(end + 2);
  }
  const size_t file = message.find(".cc:");
  if (file != std::string_view::npos && message.find(' ') > file) {
    const size_t end = message.find(": ", file);
    if (end != std::string_view::npos) message.remove_prefix(end + 2);
  }
  return message;
}

}  // namespace

Result<std::shared_ptr<const XgrammarLibrary>> XgrammarLibrary::open(const fs::path& folder) {
  std::shared_ptr<XgrammarLibrary> library(new XgrammarLibrary);
  CHORAL_RETURN_IF_ERROR(library->load(folder));
  return std::shared_ptr<const XgrammarLibrary>(std::move(library));
}

Status XgrammarLibrary::load(const fs::path& folder) {
  // The binding finds the one by the name of the other, so it comes first.
  CHORAL_RETURN_IF_ERROR(open_file(folder / "tvm_ffi" / "lib" / "libtvm_ffi.so").status());
  CHORAL_TRY(void* const binding, open_file(folder / "xgrammar" / "libxgrammar_bindings.so"));
  // Through the binding: those functions that it is bound to, should two copies be loaded.
  const std::string lacking = fmt::format("; {}", kInstall);
  const OpenedLibrary functions{binding, "xgrammar: libtvm_ffi.so", lacking};
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIGetVersion", functions_.GetVersion));
  tvm_ffi::Version version{};
  functions_.GetVersion(&version);
  if (std::ranges::find(tvm_ffi::kKnown, version) == std::end(tvm_ffi::kKnown)) {
    return unsupported("xgrammar: libtvm_ffi.so is version {}.{}.{}, which is not known to this build; {}", version.major,
                       version.minor, version.patch, kInstall);
  }
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIObjectDecRef", functions_.ObjectDecRef));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFITypeKeyToIndex", functions_.TypeKeyToIndex));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIGetTypeInfo", functions_.GetTypeInfo));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIFunctionGetGlobal", functions_.FunctionGetGlobal));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIFunctionCall", functions_.FunctionCall));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIErrorMoveFromRaised", functions_.ErrorMoveFromRaised));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIStringFromByteArray", functions_.StringFromByteArray));
  CHORAL_RETURN_IF_ERROR(functions.find("TVMFFIBytesFromByteArray", functions_.BytesFromByteArray));
  return find_methods();
}

Status XgrammarLibrary::find_methods() {
  const auto method = [this](std::string_view type, std::string_view name, Function& out) -> Status {
    const std::string key = fmt::format("xgrammar.tvm_ffi_binding.{}", type);
    const tvm_ffi::Bytes key_bytes = ffi_bytes(key);
    int32_t index = 0;
    if (functions_.TypeKeyToIndex(&key_bytes, &index) != 0) return last_error();
    const tvm_ffi::TypeInfo* info = functions_.GetTypeInfo(index);
    // The layouts are as written down, or this does not hold.
    if (info == nullptr || std::string_view(info->key.data, info->key.size) != key) {
      return unsupported("xgrammar: its type information is not laid out as is known to this build; {}", kInstall);
    }
    for (int32_t i = 0; i < info->method_count; ++i) {
      const tvm_ffi::Method& each = info->methods[i];
      if (std::string_view(each.name.data, each.name.size) != name || each.function.type_index != tvm_ffi::kFunction) continue;
      out = each.function.object;
      return {};
    }
    return unsupported("xgrammar: {} has no {}; {}", key, name, kInstall);
  };
  CHORAL_RETURN_IF_ERROR(method("TokenizerInfo", "__ffi_init__", methods_.make_tokenizer));
  CHORAL_RETURN_IF_ERROR(method("TokenizerInfo", "vocab_size", methods_.tokenizer_size));
  CHORAL_RETURN_IF_ERROR(method("GrammarCompiler", "__ffi_init__", methods_.make_compiler));
  CHORAL_RETURN_IF_ERROR(method("GrammarCompiler", "compile_json_schema", methods_.compile_json_schema));
  CHORAL_RETURN_IF_ERROR(method("GrammarCompiler", "compile_regex", methods_.compile_regex));
  CHORAL_RETURN_IF_ERROR(method("GrammarCompiler", "compile_grammar_from_strings", methods_.compile_grammar));
  CHORAL_RETURN_IF_ERROR(method("GrammarCompiler", "compile_structural_tag", methods_.compile_structural_tag));
  CHORAL_RETURN_IF_ERROR(method("CompiledGrammar", "memory_size_bytes", methods_.grammar_bytes));
  CHORAL_RETURN_IF_ERROR(method("GrammarMatcher", "__ffi_init__", methods_.make_matcher));
  CHORAL_RETURN_IF_ERROR(method("GrammarMatcher", "fill_next_token_bitmask", methods_.fill_mask));
  CHORAL_RETURN_IF_ERROR(method("GrammarMatcher", "accept_token", methods_.accept_token));
  CHORAL_RETURN_IF_ERROR(method("GrammarMatcher", "is_completed", methods_.is_completed));
  CHORAL_RETURN_IF_ERROR(method("GrammarMatcher", "rollback", methods_.rollback));
  CHORAL_RETURN_IF_ERROR(method("GrammarMatcher", "find_jump_forward_string", methods_.forced_text));

  const auto global = [this](std::string_view name, Function& out) -> Status {
    const tvm_ffi::Bytes bytes = ffi_bytes(name);
    if (functions_.FunctionGetGlobal(&bytes, &out) != 0) return last_error();
    return out ? Status() : unsupported("xgrammar: there is no function {}; {}", name, kInstall);
  };
  CHORAL_RETURN_IF_ERROR(global("ffi.Array", make_array_));
  Function set_recursion = nullptr;
  CHORAL_RETURN_IF_ERROR(global("xgrammar.tvm_ffi_binding.config.set_max_recursion_depth", set_recursion));
  tvm_ffi::Any depth = ffi_integer(kMaxRecursion);
  return call(set_recursion, {&depth, 1}).status();
}

Status XgrammarLibrary::last_error() const {
  void* raised = nullptr;
  functions_.ErrorMoveFromRaised(&raised);
  if (raised == nullptr) return internal_error("xgrammar failed and does not say why");
  const auto* error = static_cast<const tvm_ffi::Error*>(raised);
  Status status = invalid_argument("{}", terminal_text(words_of({error->message.data, error->message.size}).substr(0, 500)));
  static_cast<void>(functions_.ObjectDecRef(raised));
  return status;
}

Result<FfiValue> XgrammarLibrary::call(Function function, std::span<tvm_ffi::Any> arguments) const {
  tvm_ffi::Any result;
  if (functions_.FunctionCall(function, arguments.data(), static_cast<int32_t>(arguments.size()), &result) != 0) {
    return last_error();
  }
  return FfiValue(result, &functions_);
}

Result<FfiValue> XgrammarLibrary::text(std::string_view utf8) const {
  const tvm_ffi::Bytes in = ffi_bytes(utf8);
  tvm_ffi::Any out;
  if (functions_.StringFromByteArray(&in, &out) != 0) return last_error();
  return FfiValue(out, &functions_);
}

Result<FfiValue> XgrammarLibrary::bytes(std::string_view bytes) const {
  const tvm_ffi::Bytes in = ffi_bytes(bytes);
  tvm_ffi::Any out;
  if (functions_.BytesFromByteArray(&in, &out) != 0) return last_error();
  return FfiValue(out, &functions_);
}

Result<FfiValue> XgrammarLibrary::array(std::span<tvm_ffi::Any> elements) const {
  if (elements.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) return too_large("xgrammar: too many elements");
  return call(make_array_, elements);
}

}  // namespace choral::text
