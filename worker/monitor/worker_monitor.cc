#include "worker/monitor/worker_monitor.h"

#include <unistd.h>

#include <map>
#include <string>
#include <utility>

#include "common/log.h"
#include "common/metrics/families.h"
#include "common/status.h"
#include "worker/monitor/worker_metrics.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<HttpServer>> StartWorkerMonitor(const HttpFlags& flags,
                                                               const RunMeter& meter) {
  if (!flags.port_file.empty()) unlink(flags.port_file.c_str());
  std::map<std::string, HttpPage> pages;
  pages["/healthz"] = [](absl::string_view) { return HttpReply{.body = "ok\n"}; };
  pages["/metrics"] = [&meter](absl::string_view) {
    Families families;
    AddWorkerMetrics(meter.Read(), families);
    AddProcessMetrics(families);
    return HttpReply{.content_type = std::string(kMetricsTextType),
                     .body = MetricsText(families.Take())};
  };
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server,
                   HttpServer::Start(flags.server, std::move(pages)));
  LOG(INFO) << "metrics at http://" << server->address() << "/metrics";
  if (!flags.port_file.empty()) {
    RETURN_IF_ERROR(WriteAddressFile("http_port_file", flags.port_file, server->address()));
  }
  return server;
}

}  // namespace cairn
