# cairn-ps, cairn-worker and cairnctl, as examples/kubernetes runs them.
#   docker build -t registry.example/cairn:0.2.0 .
FROM debian:12-slim AS build
WORKDIR /src
COPY examples/install_packages.sh examples/
RUN examples/install_packages.sh
COPY . .
RUN meson setup build -Dunity=on -Dunity_size=100 -Dtests=disabled -Dcuda=disabled \
 && ninja -C build ps_server/cairn-ps worker/cairn-worker worker/ctl/cairnctl \
 && mkdir -p /out/bin \
 && cp build/ps_server/cairn-ps build/worker/cairn-worker build/worker/ctl/cairnctl /out/bin/ \
 && strip /out/bin/* \
 && examples/runtime_packages.sh /out/bin/* >/out/packages

FROM debian:12-slim
COPY --from=build /out/packages /usr/share/cairn/packages
RUN apt-get update \
 && xargs -a /usr/share/cairn/packages \
      env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 cairn \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/cairn --create-home cairn
COPY --from=build /out/bin/ /usr/local/bin/
USER 10001:10001
WORKDIR /var/lib/cairn
CMD ["cairnctl", "--help"]
