#include "serve/http/form_data.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/printable.h"
#include "serve/http/message.h"

namespace choral::serve {
namespace {

constexpr std::string_view kFormType = "multipart/form-data", kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";
constexpr size_t kMostBoundaryBytes = 70;

// A parameter behind a header's value: `; name="a \"b\""`, `; boundary=x`. Nothing: there is none of that name.
Result<std::optional<std::string>> header_parameter(std::string_view header, std::string_view wanted) {
  size_t at = std::min(header.find(';'), header.size());
  while (at < header.size()) {
    const size_t equals = header.find('=', ++at);
    if (equals == header.npos) return std::optional<std::string>();
    const std::string_view name = trimmed(header.substr(at, equals - at));
    std::string value;
    at = equals + 1;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        value += header[at];
      }
      if (at == header.size()) return corrupt("a quoted value of the header {} has no end", quoted(header, 80));
      at = std::min(header.find(';', at), header.size());
    } else {
      const size_t end = std::min(header.find(';', at), header.size());
      value = trimmed(header.substr(at, end - at));
      at = end;
    }
    if (equal_ignoring_case(name, wanted)) return std::optional(std::move(value));
  }
  return std::optional<std::string>();
}

Result<std::string> boundary_of(std::string_view content_type) {
  const std::string_view kind = trimmed(content_type.substr(0, content_type.find(';')));
  if (!equal_ignoring_case(kind, kFormType))
    return invalid_argument("the body must be a form with a file, Content-Type: {}; the request says {}", kFormType,
                            content_type.empty() ? "none" : quoted(content_type, 80));
  CHORAL_TRY(auto boundary, header_parameter(content_type, "boundary"));
  if (!boundary || boundary->empty() || boundary->size() > kMostBoundaryBytes)
    return invalid_argument("the Content-Type {} needs a boundary of 1 to {} bytes", kFormType, kMostBoundaryBytes);
  return *std::move(boundary);
}

// The value of the line that begins with "Content-Disposition:"; empty: there is none.
std::string_view disposition(std::string_view head) {
  constexpr std::string_view kName = "Content-Disposition:";
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find(kLineEnd));
    if (equal_ignoring_case(line.substr(0, kName.size()), kName)) return trimmed(line.substr(kName.size()));
    head.remove_prefix(std::min(line.size() + kLineEnd.size(), head.size()));
  }
  return {};
}

Result<FormPart> read_form_part(std::string_view part) {
  // A part without a head begins with the empty line.
  const size_t head_bytes = part.starts_with(kLineEnd) ? 0 : part.substr(0, kMostFormHeadBytes).find(kHeadEnd);
  if (head_bytes == part.npos) return corrupt("a part of the form has no end of its head within {} bytes", kMostFormHeadBytes);
  const std::string_view said = disposition(part.substr(0, head_bytes));
  CHORAL_TRY(auto name, header_parameter(said, "name"));
  if (!said.starts_with("form-data") || !name) return corrupt("a part of the form has no name: Content-Disposition says it");
  FormPart read{.name = *std::move(name), .file_name = {}, .content = {}};
  CHORAL_TRY(read.file_name, header_parameter(said, "filename"));
  read.content = part.substr(head_bytes + (head_bytes == 0 ? kLineEnd : kHeadEnd).size());
  return read;
}

}  // namespace

Result<std::vector<FormPart>> read_form_data(std::string_view content_type, std::string_view body) {
  CHORAL_TRY(const std::string boundary, boundary_of(content_type));
  const std::string first = "--" + boundary, next = "\r\n--" + boundary;
  std::vector<FormPart> parts;
  size_t at = first.size();
  if (!body.starts_with(first)) {  // something stands before the first part
    at = body.find(next);
    if (at != body.npos) at += next.size();
  }
  for (;;) {
    if (at == body.npos) return corrupt("the form has no end: its last boundary is missing");
    body.remove_prefix(at);
    if (body.starts_with("--")) return parts;
    const size_t line = body.find(kLineEnd);
    if (line == body.npos || body.substr(0, line).find_first_not_of(" \t") < line)
      return corrupt("a boundary of the form is followed by something that is no end of a line");
    body.remove_prefix(line + kLineEnd.size());
    if (parts.size() == kMostFormParts) return too_large("the form has more than {} parts", kMostFormParts);
    // The line's end before a boundary is the boundary's, also where the part is its head alone.
    const size_t end = body.find(next);
    if (end == body.npos) return corrupt("the form has no end: its last boundary is missing");
    CHORAL_TRY(auto part, read_form_part(body.substr(0, end)));
    parts.push_back(std::move(part));
    at = end + next.size();
  }
}

}  // namespace choral::serve
