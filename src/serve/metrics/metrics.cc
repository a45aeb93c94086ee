#include "serve/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <mutex>
#include <sstream>

#include "serve/metrics/adapter_series.h"
#include "serve/metrics/families.h"
#include "serve/metrics/request_series.h"

namespace choral::serve {
namespace {

using prometheus::Counter;
using prometheus::Labels;

constexpr std::array kRejections{Rejection::kQueueFull, Rejection::kQueueShare, Rejection::kKeyLimit, Rejection::kAdapterLimit,
                                 Rejection::kDraining};
constexpr size_t kMaxHttpSeries = 512;  // a route table has some tens, each with some codes
constexpr const char* kOtherRoute = "other";
const prometheus::Histogram::BucketBoundaries kLoadBuckets{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

}  // namespace

std::string_view rejection_name(Rejection reason) {
  switch (reason) {
    case Rejection::kQueueFull: return "queue_full";
    case Rejection::kQueueShare: return "queue_share";
    case Rejection::kKeyLimit: return "key_limit";
    case Rejection::kAdapterLimit: return "adapter_limit";
    case Rejection::kDraining: return "draining";
  }
  return "unknown";
}

struct Metrics::Impl {
  Impl(const std::string& model_name, const ModelInfo& model, const EngineOptions& options, size_t max_adapters)
      : constant{{"engine", "0"}, {"model_name", model_name}},
        facts{model_name, model, options.enable_prefix_caching, options.max_cpu_loras},
        requests(registry, constant, model.max_model_len),
        adapters(registry, constant, max_adapters),
        http(prometheus::BuildCounter()
                 .Name("choral:http_requests_total")
                 .Help("Answers that went out, by route and status.")
                 .Register(registry)),
        unknown_fields(prometheus::BuildCounter()
                           .Name("choral:unknown_request_fields_total")
                           .Help("Fields of requests that no route knows; they had no effect.")
                           .Register(registry)
                           .Add({})),
        load_s(prometheus::BuildHistogram()
                   .Name("choral:adapter_load_seconds")
                   .Help("Loads of adapters that clients asked for by name, until they could be used.")
                   .Register(registry)
                   .Add({}, kLoadBuckets)) {
    auto& family = prometheus::BuildCounter()
                       .Name("vllm:admission_rejections_total")
                       .Help("Requests that were refused before they had a place, by the reason.")
                       .Labels({{"model_name", model_name}})
                       .Register(registry);
    for (const auto reason : kRejections) {
      rejections[static_cast<size_t>(reason)] = &family.Add({{"reason", std::string(rejection_name(reason))}});
    }
  }

  Counter& http_counter(std::string_view route, int status) {
    const std::lock_guard lock(mutex);
    auto key = std::pair(std::string(route.empty() ? kOtherRoute : route), status);
    if (const auto found = http_counters.find(key); found != http_counters.end()) return *found->second;
    if (http_counters.size() >= kMaxHttpSeries) key.first = kOtherRoute;
    auto& counter = http.Add({{"route", key.first}, {"code", std::to_string(status)}});
    return *http_counters.emplace(std::move(key), &counter).first->second;
  }

  prometheus::Registry registry;
  const Labels constant;
  const EngineFacts facts;
  RequestSeries requests;
  AdapterSeriesTable adapters;
  std::array<Counter*, kRejections.size()> rejections;
  prometheus::Family<Counter>& http;
  Counter& unknown_fields;
  prometheus::Histogram& load_s;
  std::mutex mutex;
  std::map<std::pair<std::string, int>, Counter*> http_counters;
};

Metrics::Metrics(const std::string& model_name, const ModelInfo& model, const EngineOptions& options, size_t max_adapters)
    : impl_(std::make_unique<Impl>(model_name, model, options, max_adapters)) {}
Metrics::~Metrics() = default;

RequestMeter Metrics::begin(std::span<const AdapterUse> adapters, const SamplingParams& sampling, double arrival_s) {
  auto state = std::unique_ptr<RequestMeter::State>(new RequestMeter::State{.series = impl_->requests,
                                                                            .adapter = impl_->adapters.find(adapters),
                                                                            .arrival_s = arrival_s,
                                                                            .max_tokens = sampling.max_tokens,
                                                                            .answers = {}});
  state->answers.resize(sampling.n);
  return RequestMeter(std::move(state));
}

void Metrics::reject(Rejection reason) { impl_->rejections.at(static_cast<size_t>(reason))->Increment(); }
void Metrics::http_answer(std::string_view route, int status) { impl_->http_counter(route, status).Increment(); }
void Metrics::unknown_fields(int64_t count) { impl_->unknown_fields.Increment(static_cast<double>(count)); }
void Metrics::adapter_loaded(double seconds) { impl_->load_s.Observe(seconds); }

std::string Metrics::exposition(const EngineView& view, double unix_s) {
  auto families = engine_families(view, impl_->facts, unix_s);
  auto counted = impl_->registry.Collect();  // before places are given back: what was counted last is told once
  prometheus::MetricFamily bytes{
      "choral:adapter_bytes", "Memory of an adapter's content; 0 when it is not in memory.", prometheus::MetricType::Gauge, {}};
  for (const auto& [label, size] : impl_->adapters.bytes_by_label(view.adapters)) {
    auto& metric = bytes.metric.emplace_back();
    for (const auto& [name, value] : impl_->constant) metric.label.push_back({name, value});
    metric.label.push_back({"adapter", label});
    metric.gauge.value = static_cast<double>(size);
  }
  families.push_back(std::move(bytes));
  std::move(counted.begin(), counted.end(), std::back_inserter(families));
  auto process = process_families();
  std::move(process.begin(), process.end(), std::back_inserter(families));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace choral::serve
