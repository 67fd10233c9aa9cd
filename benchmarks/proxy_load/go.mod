module proxyload

go 1.22
