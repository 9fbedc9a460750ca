//! Every byte that crosses the network: codecs and signed objects (pure)
