module peers/go

go 1.24

require peers/listen v0.0.0

replace peers/listen => ../listen
