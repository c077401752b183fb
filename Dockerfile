# syntax=docker/dockerfile:1

# The programs of Reclaim: `worker` (run, migrate, render, simulator, …) and `starter` (serve and the command line).

FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/ ./worker ./starter

# Alpine for its CA certificates, which payment channels are checked by, and for wget, which the health checks use.
FROM alpine:3.24.1
# A volume mounted here takes over the owner.
RUN install -d -o 65532 -g 65532 /var/lib/reclaim
COPY --from=build /out/worker /out/starter /usr/local/bin/
USER 65532:65532
WORKDIR /var/lib/reclaim
STOPSIGNAL SIGTERM
CMD ["worker", "run"]
