// There is no Go here. This file ends Reclaim's module at this folder: npm puts Go files into node_modules, in folders whose
// names Go refuses.
module github.com/reclaimhq/reclaim/worker/examples/typescript
