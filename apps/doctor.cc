// `choral doctor`: what this machine offers, what is used of it, why anything is not, and what to do about it.
#include "tools/doctor.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "answer_layout.h"
#include "base/cpu_level.h"
#include "base/machine_facts.h"
#include "base/printable.h"
#include "base/thread_plan.h"
#include "base/thread_pool.h"
#include "command.h"
#include "engine_flags.h"
#include "output_file.h"
#include "progress.h"
#include "terminal_text.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using tools::DoctorReport;

struct DoctorFlags {
  EngineFlags engine;
  bool ops = false;
  bool json = false;
};

void examine_cpu(const MachineFacts& machine, int threads, Seating seating, DoctorReport& report) {
  report.fine("CPU", machine.cpu_model.empty() ? "unknown model" : machine.cpu_model);
  const CpuLevel has = machine_cpu_level(), used = cpu_level();
  const char* cap = std::getenv("CHORAL_CPU_LEVEL");
  if (used < has) {
    report.notice("CPU level", fmt::format("{} is used, the machine has {}", cpu_level_name(used), cpu_level_name(has)),
                  fmt::format("CHORAL_CPU_LEVEL={} caps it: unset it", cap != nullptr ? cap : ""));
  } else if (has == CpuLevel::kBase) {
    report.notice("CPU level", "base: the machine has no AVX2 with FMA", "expect a quarter of a newer machine's speed or less");
  } else {
    report.fine("CPU level", fmt::format("{} (CHORAL_CPU_LEVEL would cap it)", cpu_level_name(used)));
  }
  const CpuShare& cpu = machine.cpu;
  std::string cores =
      fmt::format("{} threads on {} CPUs, {} physical cores{}", threads, cpu.cpus, cpu.cores, machine.smt ? ", SMT on" : "");
  if (cpu.efficient > 0) cores += fmt::format(", {} of them efficiency cores", cpu.efficient);
  cores += fmt::format("; {}", machine.topology.text());
  if (!ThreadPlan::on(machine.topology, threads, seating).seats.front().cpus.empty()) cores += ", each thread at one of them";
  if (cpu.quota > 0) cores += fmt::format("; {} grants the time of {:.3g} CPUs", cpu.quota_name, cpu.quota);
  if (threads > cpu.cpus) {
    report.notice("threads", cores, "more threads than CPUs wait for each other: lower --threads");
  } else if (threads > cpu.threads() && cpu.efficient > 0 && threads > cpu.cores - cpu.efficient) {
    report.notice("threads", cores, fmt::format("threads on efficiency cores are waited for: --threads {}", cpu.threads()));
  } else if (cpu.quota > 0 && threads > std::ceil(cpu.quota)) {
    report.notice("threads", cores, fmt::format("--threads {}, or raise the container's limit", cpu.threads()));
  } else {
    report.fine("threads", cores);
  }
}

void examine_memory(const FreeMemory& memory, DoctorReport& report) {
  const auto of = [](const MemoryLimit& limit) {
    return fmt::format("{} free of {}", size_text(limit.free_bytes), size_text(limit.total_bytes));
  };
  const MemoryLimit& least = memory.least_free;
  std::string text = of(least);
  if (!least.name.empty()) text += fmt::format(", by {}; the machine has {}", least.name, of(memory.machine));
  constexpr int64_t kLittle = int64_t{1} << 30;
  if (least.free_bytes < kLittle) {
    report.notice("memory", text, fmt::format("little is left even for a small model: {}", least.cure));
  } else {
    report.fine("memory", text);
  }
}

void examine_huge_pages(const MachineFacts& machine, DoctorReport& report) {
  if (machine.huge_pages == "never") {
    report.notice("huge pages", "transparent huge pages are off",
                  "some percent of speed: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
  } else {
    report.fine("huge pages", machine.huge_pages.empty() ? "not known" : "transparent: " + machine.huge_pages);
  }
}

// Decode reads every weight once a token and multiplies it once: the smaller of both limits.
void examine_speed(const kernels::MachinePeaks& peaks, DoctorReport& report) {
  std::string text = fmt::format("memory read {:.1f} GB/s, fp32 FMA {:.0f} GFLOP/s, int8 {:.0f} GOP/s", peaks.read_gbps,
                                 peaks.fma_gflops, peaks.int8_gops);
  if (peaks.tile_gflops > 0) text += fmt::format(", bf16 tiles {:.0f} GFLOP/s", peaks.tile_gflops);
  report.fine("measured", text);
  struct Size {
    const char* name;
    double weights;
  };
  constexpr std::array<Size, 3> kSizes{{{"135M", 0.1345e9}, {"1B", 1.236e9}, {"8B", 8.03e9}}};
  constexpr double kBf16Bytes = 2, kQ4Bytes = 4.5 / 8, kFlopsPerWeight = 2;
  std::string bound;
  for (const auto& [name, weights] : kSizes) {
    const auto rate = [&](double bytes, double ops) {
      return std::min(peaks.read_gbps * 1e9 / (weights * bytes), ops * 1e9 / (weights * kFlopsPerWeight));
    };
    bound += fmt::format("{}{}: {:.1f} bf16, {:.1f} q4", bound.empty() ? "" : "; ", name, rate(kBf16Bytes, peaks.fma_gflops),
                         rate(kQ4Bytes, std::max(peaks.int8_gops, peaks.fma_gflops)));
  }
  report.fine("at most", "tokens/s of one answer, by parameters: " + bound);
}

// What `subject` is followed by stands in a column of its own; at a terminal below a subject that is longer.
std::string finding_line(std::string_view subject, std::string_view text, int columns) {
  constexpr int kSubject = 14;  // columns
  constexpr int kText = 17;     // columns before it: the mark, the subject, and a blank behind each
  const std::string name = terminal_line(subject);
  const std::string body = wrap_hanging(terminal_text(text), columns > kText ? columns - kText : 0, 0);
  const bool is_below = columns > 0 && text_width(name) > kSubject;
  std::string out = is_below ? name + "\n" + std::string(kText, ' ') : fmt::format("{:<{}} ", name, kSubject);
  for (const char c : body) {
    out += c;
    if (c == '\n') out.append(kText, ' ');
  }
  return out + "\n";
}

std::string report_text(const DoctorReport& report) {
  const int columns = terminal_columns();
  std::string out;
  for (const auto& f : report.findings) {
    out += mark_of(f.verdict) + " " + finding_line(f.subject, f.text, columns);
    if (!f.cure.empty()) out += "  " + finding_line("", "→ " + f.cure, columns);
  }
  if (!report.operators.empty()) out += "\n";
  for (const auto& line : report.operators) out += wrap_hanging(terminal_text(line), columns) + "\n";
  return out;
}

std::string report_json(const DoctorReport& report) {
  constexpr std::array<const char*, 3> kNames{"fine", "notice", "wrong"};
  Json findings = Json::array();
  for (const auto& f : report.findings) {
    Json one{{"verdict", kNames.at(static_cast<size_t>(f.verdict))}, {"subject", f.subject}, {"text", f.text}};
    if (!f.cure.empty()) one["cure"] = f.cure;
    findings.push_back(std::move(one));
  }
  Json all{{"version", version()}, {"findings", std::move(findings)}};
  if (!report.operators.empty()) all["operators"] = report.operators;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status run(const DoctorFlags& flags) {
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  if (options.threads < 0 || options.threads > 1024) return invalid_argument("--threads {}: give 1 to 1024", options.threads);
  CHORAL_TRY(const Seating seating, parse_numa(options.numa));
  const int threads = options.threads > 0 ? options.threads : ThreadPool::default_size();
  const MachineFacts machine = machine_facts();
  DoctorReport report;
  Status status;
  CHORAL_TRY(const auto device, tools::ExaminedDevice::open(options, threads, report, status));
  if (options.device == "auto") tools::look_for_gpu(machine, report);
  examine_cpu(machine, threads, seating, report);
  examine_memory(machine.memory, report);
  examine_huge_pages(machine, report);
  tools::examine_hub_cache(report);
  tools::examine_packed_cache(report);
  {
    Progress progress(flags.engine.quiet);
    progress.update("measuring memory and arithmetic", Progress::kUnknown);
    examine_speed(device->measure_peaks(), report);
  }
  if (options.model.empty()) tools::list_what_is_served(report);
  if (!options.model.empty() && status.ok()) status = device->examine_model(options, report);
  if (flags.ops) device->list_operators(report);
  CHORAL_RETURN_IF_ERROR(print_out(flags.json ? report_json(report) : report_text(report)));
  if (status.ok() || flags.json) return status;
  return Status(status.code(), "not all is well: see ✗ in the report");  // which has the reason
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("doctor", "what this machine and MODEL offer, what is used, and why anything is not");
  const auto flags = std::make_shared<DoctorFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_flag("--ops", flags->ops, "list every operator and the kernel that serves each weight format");
  sub->add_flag("--json", flags->json, "one JSON object");
  sub->add_option("-t,--threads", flags->engine.options.threads, "as for the other commands")->type_name("N");
  sub->add_option("--cpu-list", flags->engine.cpu_list, "as for the other commands")->type_name("LIST");
  sub->add_option("--numa", flags->engine.numa, "as for the other commands")->type_name("MODE");
  sub->add_option("--device", flags->engine.options.device, "auto, cpu, a plug-in's name, or NAME:1 for its second device")
      ->type_name("NAME");
  sub->add_flag("--require-device", flags->engine.options.require_device, "no CPU in its place when no plug-in works");
  sub->add_option("--draft-model,--model-draft", flags->engine.options.draft_model, "that guesses tokens beside MODEL")
      ->type_name("MODEL");
  sub->add_option("--chat-template", flags->engine.chat_template_file, "a Jinja file instead of the model's")->type_name("FILE");
  sub->add_flag("-q,--quiet", flags->engine.quiet, "no progress");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
