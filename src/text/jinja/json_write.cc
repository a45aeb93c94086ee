#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

class Writer {
 public:
  Writer(Interpreter& interp, const JsonStyle& style) : interp_(interp), style_(style) {}

  Status write(const Value& value, size_t level) {
    CHORAL_RETURN_IF_ERROR(interp_.check_text(out_.size()));
    CHORAL_RETURN_IF_ERROR(interp_.step());
    if (value.is_string()) CHORAL_RETURN_IF_ERROR(interp_.walk(value.str().size()));
    switch (value.kind()) {
      case Kind::kNone: out_ += "null"; return {};
      case Kind::kBool: out_ += value.as_bool() ? "true" : "false"; return {};
      case Kind::kInt: out_ += std::to_string(value.as_int()); return {};
      case Kind::kBigInt: out_ += value.big_digits(); return {};
      case Kind::kFloat: out_ += json_float(value.as_double()); return {};
      case Kind::kString: append_json_text(value.str(), style_.ascii, &out_); return {};
      case Kind::kList:
      case Kind::kTuple: return write_list(value.items(), level);
      case Kind::kDict: return write_dict(value.dict(), level);
      default: return invalid_argument("Object of type {} is not JSON serializable", type_name(value));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  Status new_line(size_t level) {
    if (!style_.indent) return {};
    CHORAL_RETURN_IF_ERROR(interp_.check_text(out_.size() + level * style_.indent->size()));
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += *style_.indent;
    return {};
  }

  Status write_list(const Values& items, size_t level) {
    if (items.empty()) return out_ += "[]", Status();
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      CHORAL_RETURN_IF_ERROR(new_line(level + 1));
      CHORAL_RETURN_IF_ERROR(write(items[i], level + 1));
    }
    CHORAL_RETURN_IF_ERROR(new_line(level));
    out_ += ']';
    return {};
  }

  Status write_dict(const Dict& dict, size_t level) {
    if (dict.size() == 0) return out_ += "{}", Status();
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      Status failed;
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        if (!failed.ok()) return false;
        const Result<bool> below = less(interp_, a->first, b->first);
        if (!below.ok()) failed = below.status();
        return below.ok() && *below;
      });
      CHORAL_RETURN_IF_ERROR(failed);
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      CHORAL_RETURN_IF_ERROR(new_line(level + 1));
      CHORAL_RETURN_IF_ERROR(write_key(entries[i]->first));
      out_ += style_.key_separator;
      CHORAL_RETURN_IF_ERROR(write(entries[i]->second, level + 1));
    }
    CHORAL_RETURN_IF_ERROR(new_line(level));
    out_ += '}';
    return {};
  }

  Status write_key(const Value& key) {
    if (key.is_string()) CHORAL_RETURN_IF_ERROR(interp_.walk(key.str().size()));
    switch (key.kind()) {
      case Kind::kString: append_json_text(key.str(), style_.ascii, &out_); return {};
      case Kind::kNone: out_ += "\"null\""; return {};
      case Kind::kBool: out_ += key.as_bool() ? "\"true\"" : "\"false\""; return {};
      case Kind::kInt: out_ += fmt::format("\"{}\"", key.as_int()); return {};
      case Kind::kFloat: out_ += fmt::format("\"{}\"", json_float(key.as_double())); return {};
      case Kind::kBigInt: out_ += fmt::format("\"{}\"", key.big_digits()); return {};
      default: return invalid_argument("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  Interpreter& interp_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

void append_json_text(std::string_view text, bool ascii, std::string* out) {
  out->push_back('"');
  for (size_t pos = 0; pos < text.size();) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    if (byte < 0x80) {
      ++pos;
      if (const size_t simple = kFrom.find(static_cast<char>(byte)); simple != std::string_view::npos) {
        out->push_back('\\');
        out->push_back(kTo[simple]);
      } else if (byte < 0x20) {
        *out += fmt::format("\\u{:04x}", byte);
      } else {
        out->push_back(static_cast<char>(byte));
      }
      continue;
    }
    const size_t start = pos;
    auto c = static_cast<uint32_t>(next_code_point(text, &pos));
    if (!ascii) {
      out->append(text.substr(start, pos - start));
    } else if (c < 0x10000) {
      *out += fmt::format("\\u{:04x}", c);
    } else {
      c -= 0x10000;
      *out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
    }
  }
  out->push_back('"');
}

Result<std::string> write_json(Interpreter& interp, const Value& value, const JsonStyle& style) {
  Writer writer(interp, style);
  CHORAL_RETURN_IF_ERROR(writer.write(value, 0));
  return writer.take();
}

}  // namespace choral::text::jinja
