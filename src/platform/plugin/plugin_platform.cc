#include "platform/plugin/plugin_platform.h"

#include "base/size_text.h"
#include "platform/plugin/plugin_host.h"
#include "platform/plugin/plugin_session.h"

namespace choral::platform {
namespace {

class PluginPlatform : public Platform {
 public:
  PluginPlatform(std::shared_ptr<const PluginLibrary> plugin, PluginProbe probe, Device device)
      : plugin_(std::move(plugin)), probe_(std::move(probe)), device_(device) {}

  std::string_view name() const override { return plugin_->name; }
  // What a plug-in allocates is the host's only at times, if ever (Session::reach_memory): an operator may be on its way there.
  Device device() const override { return device_; }
  std::string description() const override {
    const int count = probe_.device_count;
    return fmt::format("{}{}{}, plug-in {} {}", probe_.device_name, count > 1 ? fmt::format(" and {} more", count - 1) : "",
                       probe_.memory_bytes > 0 ? fmt::format(" ({})", size_text(static_cast<int64_t>(probe_.memory_bytes))) : "",
                       plugin_->name, plugin_->version);
  }

  Status check_and_update_config(PlatformConfig& config) const override {
    if (plugin_->api.check_and_update_config == nullptr) return {};
    auto border = with_header<choral_config>();
    border.threads = config.threads;
    border.max_num_seqs = config.max_num_seqs;
    border.max_num_batched_tokens = config.max_num_batched_tokens;
    border.max_model_len = config.max_model_len;
    CHORAL_RETURN_IF_ERROR(put_text(border.architecture, config.architecture, "architecture"));
    CHORAL_RETURN_IF_ERROR(put_text(border.dtype, config.dtype, "dtype"));
    CHORAL_RETURN_IF_ERROR(put_text(border.kv_cache_dtype, config.kv_cache_dtype, "kv_cache_dtype"));
    CHORAL_RETURN_IF_ERROR(put_text(border.worker_cls, config.worker_cls, "worker_cls"));
    CHORAL_RETURN_IF_ERROR(put_text(border.scheduler, config.scheduler, "scheduler"));
    CHORAL_RETURN_IF_ERROR(put_text(border.attention_backend, config.attention_backend, "attention_backend"));
    CHORAL_RETURN_IF_ERROR(put_text(border.custom_ops, config.custom_ops, "custom_ops"));
    CHORAL_RETURN_IF_ERROR(put_text(border.quantization, config.quantization, "quantization"));
    CHORAL_RETURN_IF_ERROR(take_status(plugin_->api.check_and_update_config(&border)).while_(fmt::format("device {}", name())));
    config.max_num_batched_tokens = border.max_num_batched_tokens;
    CHORAL_TRY(config.worker_cls, get_text(border.worker_cls, "worker_cls"));
    CHORAL_TRY(config.scheduler, get_text(border.scheduler, "scheduler"));
    CHORAL_TRY(config.attention_backend, get_text(border.attention_backend, "attention_backend"));
    CHORAL_TRY(config.custom_ops, get_text(border.custom_ops, "custom_ops"));
    CHORAL_TRY(config.quantization, get_text(border.quantization, "quantization"));
    if (config.max_num_batched_tokens <= 0) {
      return invalid_argument("device {} set max_num_batched_tokens to {}", name(), config.max_num_batched_tokens);
    }
    return {};
  }

  std::vector<std::string> worker_classes() const override {
    std::vector<std::string> names;
    for (const auto& worker : plugin_->workers) names.emplace_back(worker.name);
    return names;
  }

  std::vector<Patch> patches() const override { return plugin_->patches; }

  Result<std::unique_ptr<Session>> open(ThreadPool& pool, const PlatformConfig& config) const override {
    return PluginSession::open(*this, plugin_, probe_, pool, config).while_(fmt::format("device {}", name()));
  }

 private:
  std::shared_ptr<const PluginLibrary> plugin_;
  PluginProbe probe_;
  Device device_;
};

}  // namespace

Result<PluginProbe> probe_plugin(const PluginLibrary& plugin) {
  auto border = with_header<choral_probe>();
  const std::lock_guard one_at_a_time(plugin_opening());
  CHORAL_RETURN_IF_ERROR(take_status(plugin.api.probe(&border)).while_("its probe failed"));
  PluginProbe probe{.device_count = border.device_count,
                    .score = border.score,
                    .device_name = plugin_text(border.device_name, sizeof border.device_name),
                    .memory_bytes = std::min(border.memory_bytes, uint64_t{1} << 60),
                    .host_accessible = border.host_accessible != 0,
                    .reason = plugin_text(border.reason, sizeof border.reason)};
  if (probe.device_count <= 0 && probe.reason.empty()) probe.reason = "it found no device, and gave no reason";
  return probe;
}

std::vector<std::shared_ptr<const Platform>> make_plugin_platforms(const std::shared_ptr<const PluginLibrary>& plugin,
                                                                   const PluginProbe& probe, uint8_t kind) {
  constexpr int kMost = 256;  // numbers that Device::index holds
  std::vector<std::shared_ptr<const Platform>> platforms;
  for (int i = 0; i < std::min(probe.device_count, kMost); ++i) {
    const Device device{.kind = kind, .index = static_cast<uint8_t>(i), .host_accessible = false};
    platforms.push_back(std::make_shared<PluginPlatform>(plugin, probe, device));
  }
  return platforms;
}

}  // namespace choral::platform
