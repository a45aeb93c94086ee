#include "adapter_list.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "answer_layout.h"
#include "base/printable.h"
#include "base/status.h"
#include "engine_flags.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/adapter_name.h"
#include "lora/peft/adapters_in_root.h"
#include "lora/peft/peft_helper.h"
#include "output_file.h"
#include "terminal_text.h"
#include "tools/adapter_check.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  AdapterSpec spec;
  std::string kind;  // "LoRA", "DoRA, rsLoRA"
  int64_t rank = 0;  // the largest; 0: only the tensors say it
  uint64_t file_bytes = 0;
  std::string base;  // that it names
  std::string note;  // that it is for another base than the model
  Status error;
};

// By its config and its tensors' headers. An adapter of `root`, if that is given, must be one that a request can name.
Status describe(Row& row, const std::string& root) {
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(row.spec.name).while_("not offered"));
  if (!root.empty()) CHORAL_RETURN_IF_ERROR(lora::adapter_in_root(root, row.spec.name).status().while_("not offered"));
  CHORAL_TRY(const auto peft, lora::PEFTHelper::from_local_dir(row.spec.path));
  CHORAL_TRY(const auto file, lora::read_adapter_shapes(row.spec.path));
  if (!peft.problems().empty()) return peft.problems().to_status("not supported");
  row.kind = peft.kind();
  if (peft.ranks_known) row.rank = peft.largest_rank();
  row.file_bytes = file.size_bytes;
  row.base = peft.base_model_name_or_path;
  return {};
}

// Of many problems the first; all of them `choral adapter check` says.
std::string one_line(std::string_view text) {
  const size_t first = text.find('\n');
  if (first == text.npos) return std::string(text);
  const size_t second = std::min(text.find('\n', first + 1), text.size());
  std::string_view problem = text.substr(first + 1, second - first - 1);
  problem.remove_prefix(std::min(problem.find_first_not_of(' '), problem.size()));
  return fmt::format("{}: {}{}", text.substr(0, first), problem, second < text.size() ? " …" : "");
}

// A cell may begin with a mark.
std::string painted(const std::string& cell) {
  for (const auto& [sign, verdict] : {std::pair("! ", tools::Verdict::kNotice), std::pair("✗ ", tools::Verdict::kWrong)}) {
    if (cell.starts_with(sign)) return mark_of(verdict) + cell.substr(std::strlen(sign) - 1);
  }
  return cell;
}

std::string table(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> cells{{"NAME", "KIND", "RANK", "SIZE", "BASE", "PATH"}};
  for (const auto& row : rows) {
    if (row.error.ok()) {
      cells.push_back({printable(row.spec.name), row.kind, row.rank > 0 ? fmt::format("{}", row.rank) : "-",
                       size_text(row.file_bytes),
                       (row.note.empty() ? "" : "! ") + (row.base.empty() ? "-" : printable(row.base)) +
                           (row.note.empty() ? "" : " (another model)"),
                       printable(row.spec.path)});
    } else {
      cells.push_back({printable(row.spec.name), "✗ " + one_line(row.error.message())});
    }
  }
  std::vector<int> widths(cells[0].size());
  for (const auto& line : cells) {
    if (line.size() < widths.size() && line.size() > 1) {
      widths[0] = std::max(widths[0], text_width(line[0]));
      continue;  // a reason runs over the other columns
    }
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], text_width(line[i]));
  }
  std::string out;
  for (const auto& line : cells) {
    for (size_t i = 0; i < line.size(); ++i) {
      out += painted(line[i]);
      if (i + 1 < line.size()) out.append(widths[i] - text_width(line[i]) + 2, ' ');
    }
    out += "\n";
  }
  return out;
}

std::string records(const std::vector<Row>& rows) {
  std::string out;
  for (const auto& row : rows) {
    Json one{{"name", row.spec.name}, {"path", row.spec.path}};
    if (row.error.ok()) {
      one["kind"] = row.kind;
      if (row.rank > 0) one["rank"] = row.rank;
      one["file_bytes"] = row.file_bytes;
      if (!row.base.empty()) one["base_model"] = row.base;
      if (!row.note.empty()) one["notes"] = {row.note};
    } else {
      one["error"] = {{"code", code_name(row.error.code())}, {"message", row.error.message()}};
    }
    out += one.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return out;
}

}  // namespace

Status list_adapters(const AdapterFlags& flags, EngineOptions options, bool json) {
  CHORAL_RETURN_IF_ERROR(put_adapters(flags, options));
  if (options.adapters.empty() && options.adapter_root.empty())
    return invalid_argument("nothing to list: give --adapter-root DIR or --lora NAME=PATH");
  std::vector<Row> rows;
  for (auto& spec : options.adapters) rows.emplace_back().spec = std::move(spec);
  const size_t given = rows.size();
  if (!options.adapter_root.empty()) {
    CHORAL_TRY(auto found, lora::adapters_in_root(options.adapter_root));
    for (auto& one : found) rows.emplace_back().spec = {.name = std::move(one.name), .path = std::move(one.path)};
  }
  std::vector<std::string> base_names;
  std::unique_ptr<tools::AdapterChecker> checker;
  if (!options.model.empty()) {
    CHORAL_TRY(checker, tools::AdapterChecker::make(options));
    base_names = checker->base_names();
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    row.error = describe(row, i < given ? "" : options.adapter_root);
    row.note = lora::other_base_note(row.base, base_names);
    if (checker && row.error.ok())
      row.error = checker->check_fit(row.spec.path).while_(fmt::format("does not fit {}", base_names.front()));
  }
  if (!json && rows.empty()) return print_out(fmt::format("no adapters in {}\n", options.adapter_root));
  return print_out(json ? records(rows) : table(rows));
}

}  // namespace choral::apps
